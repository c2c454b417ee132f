// A reusable execution over a burst, in a loop: y = x + y of the step before. Input and output lie in a memfd that the program
// maps itself, so a step copies nothing but what the program writes.
#include <android/NeuralNetworks.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

void check(int code, const char *call) {
    if (code != ANEURALNETWORKS_NO_ERROR) {
        throw std::runtime_error(std::string(call) + ": result code " + std::to_string(code));
    }
}

// Owns an object of the interface: `Owned<ANeuralNetworksModel> model(ANeuralNetworksModel_free)`.
template <typename Object>
class Owned {
  public:
    explicit Owned(void (*free)(Object *)) : free_(free) {}
    ~Owned() { free_(object_); }
    Owned(const Owned &) = delete;
    Owned &operator=(const Owned &) = delete;
    Object **room() { return &object_; }
    operator Object *() const { return object_; }

  private:
    void (*free_)(Object *);
    Object *object_ = nullptr;
};

constexpr size_t kElements = 64;
constexpr size_t kBytes = kElements * sizeof(float);

// y = x + bias, with x and bias as inputs.
void build(ANeuralNetworksModel *model) {
    const uint32_t dimensions[] = {kElements};
    const ANeuralNetworksOperandType tensor = {ANEURALNETWORKS_TENSOR_FLOAT32, 1, dimensions, 0.0f, 0};
    const ANeuralNetworksOperandType scalar = {ANEURALNETWORKS_INT32, 0, nullptr, 0.0f, 0};
    for (const auto *type : {&tensor, &tensor, &scalar, &tensor}) {
        check(ANeuralNetworksModel_addOperand(model, type), "addOperand");
    }
    const int32_t activation = ANEURALNETWORKS_FUSED_NONE;
    check(ANeuralNetworksModel_setOperandValue(model, 2, &activation, sizeof activation), "setOperandValue");
    const uint32_t all[] = {0, 1, 2};
    const uint32_t output[] = {3};
    check(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_ADD, 3, all, 1, output), "addOperation");
    check(ANeuralNetworksModel_identifyInputsAndOutputs(model, 2, all, 1, output), "identify");
    check(ANeuralNetworksModel_finish(model), "Model_finish");
}

// A memfd that can never be resized again: a driver maps it as it is.
int sealed_memory(size_t bytes) {
    const int fd = memfd_create("burst_loop", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        throw std::runtime_error("cannot make a sealed memfd");
    }
    return fd;
}

void run(long steps) {
    Owned<ANeuralNetworksModel> model(ANeuralNetworksModel_free);
    check(ANeuralNetworksModel_create(model.room()), "Model_create");
    build(model);

    Owned<ANeuralNetworksCompilation> compilation(ANeuralNetworksCompilation_free);
    check(ANeuralNetworksCompilation_create(model, compilation.room()), "Compilation_create");
    check(ANeuralNetworksCompilation_finish(compilation), "Compilation_finish");

    // Three tensors in one memory: x, bias, y.
    const int fd = sealed_memory(3 * kBytes);
    void *mapped = mmap(nullptr, 3 * kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        throw std::runtime_error("cannot map the memfd");
    }
    float *x = static_cast<float *>(mapped);
    float *bias = x + kElements;
    const float *y = x + 2 * kElements;

    Owned<ANeuralNetworksMemory> memory(ANeuralNetworksMemory_free);
    check(ANeuralNetworksMemory_createFromFd(3 * kBytes, PROT_READ | PROT_WRITE, fd, 0, memory.room()),
          "createFromFd");
    close(fd); // the memory has a duplicate

    Owned<ANeuralNetworksBurst> burst(ANeuralNetworksBurst_free);
    check(ANeuralNetworksBurst_create(compilation, burst.room()), "Burst_create");
    Owned<ANeuralNetworksExecution> execution(ANeuralNetworksExecution_free);
    check(ANeuralNetworksExecution_create(compilation, execution.room()), "Execution_create");
    check(ANeuralNetworksExecution_setReusable(execution, true), "setReusable");
    check(ANeuralNetworksExecution_setInputFromMemory(execution, 0, nullptr, memory, 0, kBytes), "input 0");
    check(ANeuralNetworksExecution_setInputFromMemory(execution, 1, nullptr, memory, kBytes, kBytes), "input 1");
    check(ANeuralNetworksExecution_setOutputFromMemory(execution, 0, nullptr, memory, 2 * kBytes, kBytes),
          "output");

    const auto begin = std::chrono::steady_clock::now();
    for (long step = 0; step < steps; step++) {
        for (size_t i = 0; i < kElements; i++) {
            x[i] = 1.0f;
            bias[i] = step == 0 ? 0.0f : y[i];
        }
        check(ANeuralNetworksExecution_burstCompute(execution, burst), "burstCompute");
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    std::printf("%g after %ld steps\n", static_cast<double>(y[kElements - 1]), steps);
    std::fprintf(stderr, "%.1f us a step\n", took.count() / static_cast<double>(steps));
    munmap(mapped, 3 * kBytes);
}

} // namespace

int main(int argc, char **argv) {
    try {
        run(argc > 1 ? std::atol(argv[1]) : 1000);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
