// What ONNX Runtime looks for in the execution provider's library: CreateEpFactories, ReleaseEpFactory. Owns the
// factory.
#include <onnxruntime_c_api.h>

#include <memory>

#include "hw_kernels/bindings/onnxruntime_values.hpp"
#include "provider.hpp"

namespace {

using npuforge::ort::guarded;
using npuforge::ort::kProviderVersion;
using npuforge::ort::Provider;

constexpr const char* kVendor = "npuforge";

class Factory : public OrtEpFactory {
  public:
    explicit Factory(const OrtApi& api) : OrtEpFactory{}, api_(api) {
        ort_version_supported = kProviderVersion;
        GetName = [](const OrtEpFactory*) noexcept { return npuforge::ort::kProviderName; };
        GetVendor = [](const OrtEpFactory*) noexcept { return kVendor; };
        GetVendorId = [](const OrtEpFactory*) noexcept -> std::uint32_t { return 0; };  // none is assigned to us
        GetVersion = [](const OrtEpFactory*) noexcept { return NPUFORGE_VERSION; };
        GetSupportedDevices = supported_devices;
        CreateEp = create;
        ReleaseEp = [](OrtEpFactory*, OrtEp* ep) noexcept { delete static_cast<Provider*>(ep); };
        CreateAllocator = [](OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*,
                             OrtAllocator** allocator) noexcept -> OrtStatus* {
            *allocator = nullptr;  // tensors are in the CPU's memory
            return nullptr;
        };
        ReleaseAllocator = [](OrtEpFactory*, OrtAllocator*) noexcept {};
        CreateDataTransfer = [](OrtEpFactory*, OrtDataTransferImpl** transfer) noexcept -> OrtStatus* {
            *transfer = nullptr;
            return nullptr;
        };
        IsStreamAware = [](const OrtEpFactory*) noexcept { return false; };
    }

  private:
    static const Factory& own(const OrtEpFactory* factory) { return *static_cast<const Factory*>(factory); }

    /// One device: the machine's processor, which drives the board or simulates it.
    static OrtStatus* supported_devices(OrtEpFactory* self, const OrtHardwareDevice* const* devices, std::size_t count,
                                        OrtEpDevice** found, std::size_t most, std::size_t* found_count) noexcept {
        const OrtApi& api = own(self).api_;
        *found_count = 0;
        for (std::size_t i = 0; i < count && *found_count < most && *found_count == 0; ++i) {
            if (api.HardwareDevice_Type(devices[i]) != OrtHardwareDeviceType_CPU) continue;
            OrtStatus* status = api.GetEpApi()->CreateEpDevice(self, devices[i], nullptr, nullptr, &found[0]);
            if (status) return status;
            *found_count = 1;
        }
        return nullptr;
    }

    static OrtStatus* create(OrtEpFactory* self, const OrtHardwareDevice* const*, const OrtKeyValuePairs* const*,
                             std::size_t, const OrtSessionOptions* options, const OrtLogger* logger,
                             OrtEp** ep) noexcept {
        const OrtApi& api = own(self).api_;
        *ep = nullptr;
        return guarded(api, [&] { *ep = new Provider(api, *logger, options); });
    }

    const OrtApi& api_;
};

}  // namespace

#define NPUFORGE_EXPORT extern "C" __attribute__((visibility("default")))

NPUFORGE_EXPORT OrtStatus* CreateEpFactories(const char*, const OrtApiBase* base, const OrtLogger*,
                                             OrtEpFactory** factories, std::size_t most, std::size_t* count) {
    const OrtApi* api = base->GetApi(kProviderVersion);
    if (!api) {  // an ONNX Runtime before 1.23: its oldest API can say so
        return base->GetApi(1)->CreateStatus(ORT_FAIL,
                                             "npuforge's execution provider needs ONNX Runtime 1.23 or newer");
    }
    *count = 0;
    if (most < 1)
        return api->CreateStatus(ORT_INVALID_ARGUMENT, "npuforge: room for one factory is needed, found none");
    return guarded(*api, [&] {
        factories[0] = std::make_unique<Factory>(*api).release();
        *count = 1;
    });
}

NPUFORGE_EXPORT OrtStatus* ReleaseEpFactory(OrtEpFactory* factory) {
    delete static_cast<Factory*>(factory);
    return nullptr;
}
