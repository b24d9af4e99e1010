// Stand-in, see ../util/data_type.hpp. A concrete set of attributes.
#pragma once

#include <map>
#include <string>
#include <typeinfo>
#include <vector>
#include <xir/util/data_type.hpp>

namespace xir {

class Attrs {
  public:
    bool has_attr(const std::string& key, const std::type_info& type = typeid(void)) const {
        const auto found = values_.find(key);
        return found != values_.end() && (type == typeid(void) || found->second.type() == type);
    }
    template <typename T>
    const T get_attr(const std::string& key) const {
        return std::any_cast<T>(values_.at(key));
    }
    const any& get_attr(const std::string& key) const { return values_.at(key); }
    std::vector<std::string> get_keys() const {
        std::vector<std::string> keys;
        for (const auto& [key, value] : values_) keys.push_back(key);
        return keys;
    }
    void set_attr(const std::string& key, const any& value) { values_[key] = value; }

  private:
    std::map<std::string, any> values_;
};

}  // namespace xir
