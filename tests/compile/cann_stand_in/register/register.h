// Stand-in declarations of CANN's ONNX parser plug-in, from what is known of its interface.
#pragma once
namespace ge {
class Operator;
}
namespace domi {
enum FrameworkType { CAFFE, MINDSPORE, TENSORFLOW = 3, ANDROID_NN, ONNX };
enum class ImplyType : unsigned int { BUILDIN = 0, TVM, CUSTOM, AI_CPU };
inline int AutoMappingByOpFn(const ge::Operator&, ge::Operator&) { return 0; }
struct Registration {
    explicit Registration(const char*) {}
    Registration& FrameworkType(domi::FrameworkType) { return *this; }
    Registration& OriginOpType(const char*) { return *this; }
    Registration& ParseParamsByOperatorFn(int (*)(const ge::Operator&, ge::Operator&)) { return *this; }
    Registration& ImplyType(domi::ImplyType) { return *this; }
};
}  // namespace domi
#define REGISTER_CUSTOM_OP(name) static const domi::Registration registration = domi::Registration(name)
