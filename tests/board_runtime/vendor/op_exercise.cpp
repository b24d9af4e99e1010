// Opens libvart_op_imp_<type>.so by the names the vendor's CPU task uses and checks what the operators compute against
// values worked out by hand. Usage: op_exercise <folder with the links>; prints "ok" or the first difference. Built
// with the stand-ins.
#include <dlfcn.h>
#include <vart/op_imp.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>
#include <xir/op/op.hpp>

namespace {

using Dims = std::vector<std::int32_t>;
std::string folder;

void require(bool condition, const std::string& what) {
    if (condition) return;
    std::printf("failed: %s\n", what.c_str());
    std::exit(1);
}

template <typename T>
xir::DataType data_type() {
    if (std::is_same_v<T, float>) return {xir::DataType::FLOAT, 32};
    return {sizeof(T) == 1 ? xir::DataType::XINT : xir::DataType::INT, static_cast<std::int32_t>(8 * sizeof(T))};
}

class Memory : public vart::TensorBuffer {
  public:
    Memory(const xir::Tensor* tensor, void* address, std::size_t bytes)
        : TensorBuffer(tensor), address_(address), bytes_(bytes) {}
    std::pair<std::uint64_t, std::size_t> data(const std::vector<std::int32_t> = {}) override {
        return {reinterpret_cast<std::uint64_t>(address_), bytes_};
    }

  private:
    void* address_;
    std::size_t bytes_;
};

template <typename T>
xir::Op source(const std::string& name, const Dims& dims, const std::string& type = "data") {
    return xir::Op(type, xir::Tensor(name, dims, data_type<T>()));
}

vart_op_imp_t implementation(std::string type) {
    for (char& letter : type)
        if (letter == ':') letter = '_';
    const std::string path = folder + "/libvart_op_imp_" + type + ".so";
    void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL);
    require(library != nullptr, "cannot open " + path);
    using Init = vart_op_imp_t (*)(const xir_op_t);
    const auto init = reinterpret_cast<Init>(dlsym(library, "vart_init_op_imp"));
    require(init != nullptr, path + ": no vart_init_op_imp");
    return init(nullptr);
}

// Runs `op` twice on the inputs; the results must be the same.
template <typename Out, typename... In>
std::vector<Out> compute(xir::Op& op, std::size_t count, std::vector<In>... values) {
    const vart_op_imp_t functions = implementation(op.get_type());
    void* self = functions.init(&op, nullptr);
    std::vector<std::unique_ptr<Memory>> buffers;
    const auto producers = op.get_input_ops("input");
    std::vector<std::pair<void*, std::size_t>> places = {{values.data(), values.size() * sizeof(In)}...};
    require(producers.size() == places.size(), op.get_type() + ": inputs");
    std::vector<void*> pointers;
    for (std::size_t i = 0; i < places.size(); ++i) {
        buffers.push_back(
            std::make_unique<Memory>(producers[i]->get_output_tensor(), places[i].first, places[i].second));
        pointers.push_back(static_cast<vart::TensorBuffer*>(buffers.back().get()));
    }
    vart_op_imp_input_t input = {"input", pointers.size(), pointers.data()};
    std::vector<Out> first(count), second(count);
    for (std::vector<Out>* result : {&first, &second}) {
        Memory output(op.get_output_tensor(), result->data(), count * sizeof(Out));
        require(functions.calculate(self, &input, 1, static_cast<vart::TensorBuffer*>(&output)) == 0, op.get_type());
    }
    require(std::memcmp(first.data(), second.data(), count * sizeof(Out)) == 0, op.get_type() + " twice");
    functions.cleanup(self);
    return first;
}

template <typename T>
void expect(const std::vector<T>& found, const std::vector<T>& wanted, const std::string& what) {
    require(found.size() == wanted.size(), what + ": size");
    for (std::size_t i = 0; i < found.size(); ++i) {
        const double difference = std::fabs(static_cast<double>(found[i]) - static_cast<double>(wanted[i]));
        require(difference <= 1e-6 * (1 + std::fabs(static_cast<double>(wanted[i]))),
                what + ": element " + std::to_string(i) + " is " + std::to_string(found[i]));
    }
}

void refused(xir::Op& op, const std::string& part) {
    const vart_op_imp_t functions = implementation(op.get_type());
    try {
        functions.cleanup(functions.init(&op, nullptr));
    } catch (const std::exception& error) {
        require(std::string(error.what()).find(part) != std::string::npos, std::string("message: ") + error.what());
        return;
    }
    require(false, op.get_type() + ": expected a refusal that names " + part);
}

}  // namespace

int main(int argc, char** argv) {
    require(argc == 2, "usage: op_exercise FOLDER");
    folder = argv[1];
    const Dims map = {1, 1, 2, 2};

    {  // per channel: (q - zero) * scale
        xir::Op q = source<std::int8_t>("q", map);
        xir::Op op("npuforge::Dequantize", xir::Tensor("r", map, data_type<float>()));
        op.inputs["input"] = {&q};
        refused(op, "no attribute scale");
        op.attrs.set_attr("scale", std::vector<float>{0.5F, 0.25F});
        op.attrs.set_attr("zero_point", std::vector<std::int32_t>{1, -2});
        expect(compute<float>(op, 4, std::vector<std::int8_t>{3, 2, -127, 127}), {1.0F, 1.0F, -64.0F, 32.25F}, "r");
    }
    {  // floor(x / scale + 1/2) + zero, kept within int8
        xir::Op x = source<float>("x", map);
        xir::Op op("npuforge::Quantize", xir::Tensor("q", map, data_type<std::int8_t>()));
        op.inputs["input"] = {&x};
        op.attrs.set_attr("scale", std::vector<float>{0.5F, 0.25F});
        op.attrs.set_attr("zero_point", std::vector<std::int32_t>{1, -2});
        expect(compute<std::int8_t>(op, 4, std::vector<float>{1.25F, -0.125F, 1000.0F, -1000.0F}), {4, -2, 127, -128},
               "q");
    }
    {  // float32 to bf16 and back: to nearest, ties to even; 1 + 2^-8 lies between 1 and 1 + 2^-7
        xir::Op x = source<float>("x", map), b("data", xir::Tensor("b", map, {xir::DataType::BFLOAT, 16}));
        xir::Op narrow("npuforge::Cast", xir::Tensor("n", map, {xir::DataType::BFLOAT, 16}));
        narrow.inputs["input"] = {&x};
        expect(compute<std::uint16_t>(narrow, 4, std::vector<float>{1.0F, -2.5F, 1.00390625F, 1.01171875F}),
               {0x3f80, 0xc020, 0x3f80, 0x3f82}, "n");
        xir::Op widen("npuforge::Cast", xir::Tensor("w", map, data_type<float>()));
        widen.inputs["input"] = {&b};
        expect(compute<float>(widen, 4, std::vector<std::uint16_t>{0x3f80, 0xc020, 0x0000, 0x4049}),
               {1.0F, -2.5F, 0.0F, 3.140625F}, "w");
        narrow.inputs["input"] = {&b};
        refused(narrow, "a cast from bfloat16 to bfloat16 is not supported");
        xir::Op relu("relu6", xir::Tensor("r", map, {xir::DataType::BFLOAT, 16}));
        relu.inputs["input"] = {&b};
        refused(relu, "type bfloat16 is not supported");
    }
    {  // two outputs, the second one asked for; k is a constant of the graph
        xir::Op x = source<float>("x", {1, 4}), k = source<std::int64_t>("k", {1}, "const");
        k.attrs.set_attr("data", std::vector<char>{2, 0, 0, 0, 0, 0, 0, 0});
        xir::Op op("onnx::TopK", xir::Tensor("index", {1, 2}, data_type<std::int64_t>()));
        op.inputs["input"] = {&x, &k};
        op.attrs.set_attr("axis", std::int32_t{1});
        op.attrs.set_attr("output_index", std::int32_t{1});
        refused(op, "no attribute output_count");
        op.attrs.set_attr("output_count", std::int32_t{2});
        expect(compute<std::int64_t>(op, 2, std::vector<float>{3, 9, -1, 7}, std::vector<std::int64_t>{2}), {1, 3},
               "index");
    }
    {  // an omitted input (min) and a fused activation behind it
        xir::Op x = source<float>("x", {1, 4}), high = source<float>("high", {1}, "const");
        high.attrs.set_attr("data", std::vector<char>{0, 0, 0, 64});  // 2.0
        xir::Op op("onnx::Clip", xir::Tensor("y", {1, 4}, data_type<float>()));
        op.inputs["input"] = {&x, &high};
        op.attrs.set_attr("input_positions", std::vector<std::int32_t>{0, 2});
        op.attrs.set_attr("activation", std::string("LeakyRelu"));
        op.attrs.set_attr("activation_alpha", 0.5F);
        expect(compute<float>(op, 4, std::vector<float>{-4, 0, 1, 5}, std::vector<float>{2}), {-2, 0, 1, 2}, "y");
    }
    {  // truth values, which are uint8 with an attribute: from the application, a constant, another operator
        const auto truth = [](const std::string& name) {
            xir::Tensor tensor(name, {1, 4}, {xir::DataType::UINT, 8});
            tensor.attrs.set_attr("npuforge_bool", true);
            return tensor;
        };
        using Bytes = std::vector<std::uint8_t>;
        xir::Op given("data", truth("m")), mask("const", truth("k")), x = source<float>("x", {1, 4});
        mask.attrs.set_attr("data", std::vector<char>{1, 1, 0, 0});
        xir::Op both("onnx::And", truth("b")), no("onnx::Not", truth("n"));
        both.inputs["input"] = {&given, &mask};
        no.inputs["input"] = {&both};
        expect(compute<std::uint8_t>(both, 4, Bytes{1, 0, 1, 0}, Bytes{1, 1, 0, 0}), {1, 0, 0, 0}, "And");
        expect(compute<std::uint8_t>(no, 4, Bytes{1, 0, 0, 0}), {0, 1, 1, 1}, "Not");
        for (const xir::Op* condition : {&given, &mask, &no}) {
            xir::Op where("onnx::Where", xir::Tensor("w", {1, 4}, data_type<float>()));
            where.inputs["input"] = {condition, &x, &x};
            const std::vector<float> a = {1, 2, 3, 4}, b = {5, 6, 7, 8};
            expect(compute<float>(where, 4, Bytes{0, 1, 1, 0}, a, b), {5, 2, 3, 8}, "Where");
        }
    }
    {  // built-in operators that the vendor has no implementation of
        xir::Op x = source<float>("x", {2, 3});
        xir::Op mean("reduction_mean", xir::Tensor("m", {2, 1}, data_type<float>()));
        mean.inputs["input"] = {&x};
        mean.attrs.set_attr("axis", std::vector<std::int32_t>{1});
        mean.attrs.set_attr("keep_dims", true);
        expect(compute<float>(mean, 2, std::vector<float>{1, 2, 6, -1, 0, 4}), {3, 1}, "mean");
        xir::Op six("relu6", xir::Tensor("s", {2, 3}, data_type<float>()));
        six.inputs["input"] = {&x};
        expect(compute<float>(six, 6, std::vector<float>{1, 2, 7, -1, 0, 6}), {1, 2, 6, 0, 0, 6}, "relu6");
        xir::Op cast("cast", xir::Tensor("c", {2, 3}, data_type<std::int32_t>()));
        cast.inputs["input"] = {&x};
        cast.attrs.set_attr("data_type", std::string("INT32"));
        expect(compute<std::int32_t>(cast, 6, std::vector<float>{1.9F, 2, 7, -1.9F, 0, 6}), {1, 2, 7, -1, 0, 6},
               "cast");
        cast.attrs.set_attr("data_type", std::string("FLOAT16"));
        refused(cast, "cast to FLOAT16 is not supported");
        xir::Op wrong("relu6", xir::Tensor("w", {2, 2}, data_type<float>()));
        wrong.inputs["input"] = {&x};
        const vart_op_imp_t functions = implementation("relu6");
        void* self = functions.init(&wrong, nullptr);
        std::vector<float> values(6), results(4);
        Memory input(x.get_output_tensor(), values.data(), 24), output(wrong.get_output_tensor(), results.data(), 16);
        void* pointer = static_cast<vart::TensorBuffer*>(&input);
        vart_op_imp_input_t argument = {"input", 1, &pointer};
        require(functions.calculate(self, &argument, 1, static_cast<vart::TensorBuffer*>(&output)) != 0,
                "a result of another size was accepted");
        functions.cleanup(self);
    }
    {  // rows that the data decide: as many as there are, then what no result holds (nobody reads the last one: -1)
        constexpr std::int64_t kNone = -((std::int64_t{1} << 62) + (std::int64_t{1} << 40));
        xir::Op x = source<float>("x", {5});
        xir::Op places("onnx::NonZero", xir::Tensor("p", {1, 5}, data_type<std::int64_t>()));
        places.inputs["input"] = {&x};
        refused(places, "the data decide its rows, but it has no npuforge_open_shape");
        places.attrs.set_attr("npuforge_open_shape", std::vector<std::int32_t>{-1});
        refused(places, "npuforge_open_shape has 1 axes, its tensor 2");
        places.attrs.set_attr("npuforge_open_shape", std::vector<std::int32_t>{1, -1});
        const std::vector<float> values = {0, 3, 0, 0, 8};
        expect(compute<std::int64_t>(places, 5, values), {1, 4, -1, -1, -1}, "rows for the application");
        places.readers = 1;
        const std::vector<std::int64_t> found = {1, 4, kNone, kNone, kNone};
        require(compute<std::int64_t>(places, 5, values) == found, "rows for other operators");
        xir::Op less("onnx::Sub", xir::Tensor("l", {1, 5}, data_type<std::int64_t>()));
        less.inputs["input"] = {&places, &places};
        less.attrs.set_attr("npuforge_open_shape", std::vector<std::int32_t>{1, -1});
        expect(compute<std::int64_t>(less, 5, found, found), {0, 0, -1, -1, -1}, "of two rows");
        const std::vector<std::int64_t> ends = {-1, -1, kNone, kNone, kNone};  // -1 is a result, too
        xir::Op size("onnx::Shape", xir::Tensor("s", {2}, data_type<std::int64_t>()));
        size.inputs["input"] = {&places};
        expect(compute<std::int64_t>(size, 2, ends), {1, 2}, "how many rows");
        expect(compute<std::int64_t>(size, 2, std::vector<std::int64_t>(5, kNone)), {1, 0}, "no row");
        xir::Op truth("onnx::Less", [] {
            xir::Tensor tensor("t", {1, 5}, {xir::DataType::UINT, 8});
            tensor.attrs.set_attr("npuforge_bool", true);
            return tensor;
        }());
        truth.inputs["input"] = {&places, &places};
        truth.attrs.set_attr("npuforge_open_shape", std::vector<std::int32_t>{1, -1});
        expect(compute<std::uint8_t>(truth, 5, found, found), {0, 0, 255, 255, 255}, "truth values");
    }
    {  // an input without elements, which the file cannot hold: a reshape to no axes at all
        xir::Tensor scalar("s", {1}, data_type<std::int64_t>());
        scalar.attrs.set_attr("npuforge_scalar", true);
        xir::Op x("data", scalar), shaped("onnx::Reshape", scalar);
        shaped.inputs["input"] = {&x};
        shaped.attrs.set_attr("input_positions", std::vector<std::int32_t>{0});
        shaped.attrs.set_attr("empty_positions", std::vector<std::int32_t>{1});
        refused(shaped, "no attribute empty_types");
        shaped.attrs.set_attr("empty_types", std::vector<std::string>{"int64"});
        expect(compute<std::int64_t>(shaped, 1, std::vector<std::int64_t>{7}), {7}, "Reshape");
    }
    {  // a scalar is one element with an attribute: an index without axes takes one away
        xir::Op x = source<float>("x", {2, 3});
        xir::Tensor scalar("k", {1}, data_type<std::int64_t>());
        scalar.attrs.set_attr("npuforge_scalar", true);
        xir::Op index("data", scalar), gather("onnx::Gather", xir::Tensor("y", {2}, data_type<float>()));
        gather.inputs["input"] = {&x, &index};
        gather.attrs.set_attr("axis", std::int32_t{1});
        expect(compute<float>(gather, 2, std::vector<float>{1, 2, 3, 4, 5, 6}, std::vector<std::int64_t>{1}), {2, 5},
               "Gather");
    }
    std::printf("ok\n");
    return 0;
}
