// Einsum on the CPU partition: any equation over float32 operands, ellipsis included; sums over all labels that the
// result lacks.
#pragma once

#include <cctype>
#include <map>

#include "npuforge/cpu.hpp"
#include "npuforge/cpu_math.hpp"

namespace npuforge::cpu {

constexpr int kEinsumLoops = 16;
constexpr std::size_t kEinsumOperands = 8;

class EinsumRule {
  public:
    /// Loops: first the labels of the result, then those summed over; strides of every operand along each.
    struct Plan {
        Shape result;
        int kept = 0, loops = 0;
        std::int64_t size[kEinsumLoops] = {};
        std::int64_t stride[kEinsumOperands][kEinsumLoops] = {};
    };

    explicit EinsumRule(const NodeInfo& node) : node_(node) {
        std::string text;
        for (const char c : node.string("equation", ""))
            if (c != ' ') text += c;
        const std::size_t arrow = text.find("->");
        std::string term;
        for (const char c : text.substr(0, arrow) + ",") {
            if (c == ',') {
                terms_.push_back(labels(term));
                term.clear();
            } else {
                term += c;
            }
        }
        if (arrow != std::string::npos) {
            result_ = labels(text.substr(arrow + 2));
            return;
        }
        // The implicit result: the ellipsis, then labels that occur once, in alphabetical order.
        std::map<char, int> count;
        for (const std::string& labels : terms_)
            for (const char c : labels) ++count[c];
        if (count.count('.')) result_ += '.';
        for (const auto& [label, times] : count)
            if (label != '.' && times == 1) result_ += label;
    }

    Plan plan(const Args& args) const {
        node_.check(args.input_count == terms_.size() && args.input_count <= kEinsumOperands,
                    "the equation names another number of operands");
        int wide = 0;  // axes of the ellipsis
        for (std::size_t i = 0; i < args.input_count; ++i) {
            node_.check(args.has(i) && args.in(i).type == Type::kFloat32, "operands must be float32");
            const bool open = terms_[i].find('.') != std::string::npos;
            const int named = static_cast<int>(terms_[i].size()) - (open ? 1 : 0);
            node_.check(open ? args.in(i).shape.rank >= named : args.in(i).shape.rank == named,
                        "an operand has another number of dimensions than its labels");
            if (open) wide = std::max(wide, args.in(i).shape.rank - named);
        }
        Plan out;
        char name[kEinsumLoops];
        const auto add = [&](char label) {
            node_.check(out.loops < kEinsumLoops, "the equation has too many labels");
            out.size[out.loops] = 1;
            name[out.loops++] = label;
        };
        // Axes of the ellipsis are named by numbers, the last one 1.
        const auto add_term = [&](const std::string& labels) {
            for (const char label : labels) {
                const int axes = label == '.' ? wide : 1;
                for (int k = axes; k > 0; --k) {
                    const char axis = label == '.' ? static_cast<char>(k) : label;
                    if (find(name, out.loops, axis) < 0) add(axis);
                }
            }
        };
        add_term(result_);
        out.kept = out.loops;
        for (const std::string& labels : terms_) add_term(labels);
        for (std::size_t i = 0; i < args.input_count; ++i) {
            const Shape& shape = args.in(i).shape;
            const int own = shape.rank - static_cast<int>(terms_[i].size()) + 1;  // axes its ellipsis stands for
            int axis = 0;
            const auto walk = [&](char label) {
                const int loop = find(name, out.loops, label);
                const std::int64_t dim = shape.dim[axis];
                if (dim != 1 && out.size[loop] != 1 && out.size[loop] != dim)
                    node_.fail("operands disagree on the size of a label: " + std::to_string(out.size[loop]) + " and " +
                               std::to_string(dim));
                if (dim != 1) {
                    out.size[loop] = dim;
                    out.stride[i][loop] += shape.count(axis + 1, shape.rank);
                }
                ++axis;
            };
            for (const char label : terms_[i]) {
                if (label != '.')
                    walk(label);
                else
                    for (int k = own; k > 0; --k) walk(static_cast<char>(k));
            }
        }
        for (int loop = 0; loop < out.kept; ++loop) out.result.push(out.size[loop]);
        return out;
    }

  private:
    /// Label letters, an ellipsis as one '.'.
    std::string labels(const std::string& term) const {
        std::string out;
        for (std::size_t i = 0; i < term.size(); ++i) {
            if (term.compare(i, 3, "...") == 0) {
                node_.check(out.find('.') == std::string::npos, "two ellipses in one term");
                out += '.';
                i += 2;
                continue;
            }
            node_.check(std::isalpha(static_cast<unsigned char>(term[i])) != 0, "labels must be letters");
            out += term[i];
        }
        return out;
    }

    static int find(const char* names, int count, char label) {
        for (int i = 0; i < count; ++i)
            if (names[i] == label) return i;
        return -1;
    }

    NodeInfo node_;
    std::vector<std::string> terms_;
    std::string result_;
};

inline void register_einsum(Registry& registry) {
    registry.add("Einsum", [](const NodeInfo& node) {
        const EinsumRule rule(node);
        Kernel kernel;
        kernel.shape = [=](const Args& args) {
            args.out().type = Type::kFloat32;
            args.out().shape = rule.plan(args).result;
        };
        kernel.run = [=](const Args& args) {
            const EinsumRule::Plan p = rule.plan(args);
            const std::int64_t results = p.result.count();
            std::int64_t terms = 1;
            for (int loop = p.kept; loop < p.loops; ++loop) terms *= p.size[loop];
            const auto offset = [&](std::size_t operand, std::int64_t position, int first, int end) {
                std::int64_t at = 0;
                for (int loop = end - 1; loop >= first; --loop) {
                    at += position % p.size[loop] * p.stride[operand][loop];
                    position /= p.size[loop];
                }
                return at;
            };
            for (std::int64_t i = 0; i < results; ++i) {
                const float* from[kEinsumOperands] = {};
                for (std::size_t k = 0; k < args.input_count; ++k)
                    from[k] = args.in(k).as<float>() + offset(k, i, 0, p.kept);
                double sum = 0.0;
                for (std::int64_t t = 0; t < terms; ++t) {
                    float product = 1.0f;
                    for (std::size_t k = 0; k < args.input_count; ++k)
                        product *= from[k][offset(k, t, p.kept, p.loops)];
                    sum += static_cast<double>(product);
                }
                args.out().as<float>()[i] = static_cast<float>(sum);
            }
        };
        return kernel;
    });
}

}  // namespace npuforge::cpu
