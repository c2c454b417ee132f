/* nnburst.h for C++11: objects that close themselves, and errors as exceptions.
 *
 *     nnburst::Device device("camera");
 *     nnburst::Model pose(device, "pose");
 *     nnburst::Burst burst(pose);
 *     nnburst::Request request(burst);
 *     request.bind();
 *     float *input = request.input<float>(0);
 *     for (;;) {
 *         ...
 *         request.run(std::chrono::milliseconds(10));
 *     }
 *
 * Objects can be moved and not copied, and close what was made from them: keep the device longest, the requests
 * shortest, as the order of their declarations does. Threads: as in nnburst.h. */
#ifndef NNBURST_HPP
#define NNBURST_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "nnburst.h"

namespace nnburst {

/* A call that failed, with its ResultCode. */
class Error : public std::runtime_error {
public:
    Error(int code, const std::string &text)
        : std::runtime_error(std::string(nnburst_result_name(code)) + (text.empty() ? "" : ": ") + text),
          code_(code) {}
    int code() const noexcept { return code_; }

private:
    int code_;
};

/* Throws if a control call failed. */
inline void check(int code) {
    if (code != NNBURST_NO_ERROR) {
        throw Error(code, nnburst_error_message());
    }
}

/* Throws if a run failed, which leaves no text. */
inline void check_run(int code) {
    if (code != NNBURST_NO_ERROR) {
        throw Error(code, "");
    }
}

using Duration = std::chrono::nanoseconds;

/* Negative durations count as none, Duration::max() as no end. */
inline std::uint64_t nanoseconds(Duration duration) {
    if (duration == Duration::max()) {
        return NNBURST_FOREVER;
    }
    return duration.count() < 0 ? 0 : static_cast<std::uint64_t>(duration.count());
}

namespace detail {
template <typename T, void (*Close)(T *)> struct Closer {
    void operator()(T *object) const noexcept { Close(object); }
};
template <typename T, void (*Close)(T *)> using Owner = std::unique_ptr<T, Closer<T, Close>>;
} /* namespace detail */

struct ServedName {
    std::string name;
    std::uint32_t version;
};

class Device {
public:
    explicit Device(const std::string &name_or_path, Duration timeout = std::chrono::seconds(30),
                    bool any_user = false) {
        nnburst_device *opened = nullptr;
        check(nnburst_connect(name_or_path.c_str(), any_user ? NNBURST_ANY_USER : 0u, nanoseconds(timeout),
                              &opened));
        device_.reset(opened);
    }
    /* A driver of this process's own. */
    static Device launch(const std::string &executor, Duration timeout = std::chrono::seconds(30)) {
        nnburst_device *opened = nullptr;
        check(nnburst_launch(executor.c_str(), 0, nanoseconds(timeout), &opened));
        return Device(opened);
    }
    bool is_alive() const noexcept { return nnburst_is_alive(device_.get()) != 0; }
    int fd() const noexcept { return nnburst_device_fd(device_.get()); }
    int pid() const noexcept { return nnburst_device_pid(device_.get()); }
    void reconnect(Duration timeout = std::chrono::seconds(30)) {
        check(nnburst_reconnect(device_.get(), nanoseconds(timeout)));
    }
    std::vector<ServedName> models(Duration timeout = std::chrono::seconds(30)) {
        nnburst_models *list = nullptr;
        check(nnburst_list_models(device_.get(), nanoseconds(timeout), &list));
        detail::Owner<nnburst_models, nnburst_free_models> owner(list);
        std::vector<ServedName> found;
        for (std::uint32_t i = 0; i < nnburst_models_count(list); i++) {
            found.push_back({nnburst_models_name(list, i), nnburst_models_version(list, i)});
        }
        return found;
    }
    nnburst_device *get() const noexcept { return device_.get(); }

private:
    explicit Device(nnburst_device *device) : device_(device) {}
    detail::Owner<nnburst_device, nnburst_close_device> device_;
};

class Memory {
public:
    explicit Memory(std::size_t size) {
        nnburst_memory *made = nullptr;
        check(nnburst_create_memory(size, &made));
        memory_.reset(made);
    }
    /* A sealed memfd in place; `fd` stays the caller's. */
    static Memory from_fd(int fd) {
        nnburst_memory *made = nullptr;
        check(nnburst_memory_from_fd(fd, &made));
        return Memory(made);
    }
    void *data() const noexcept { return nnburst_memory_data(memory_.get()); }
    std::size_t size() const noexcept { return nnburst_memory_size(memory_.get()); }
    int fd() const noexcept { return nnburst_memory_fd(memory_.get()); }
    nnburst_memory *get() const noexcept { return memory_.get(); }

private:
    explicit Memory(nnburst_memory *memory) : memory_(memory) {}
    detail::Owner<nnburst_memory, nnburst_free_memory> memory_;
};

class Model {
public:
    Model(const Device &device, const std::string &name, std::uint32_t version = 0,
          Duration timeout = std::chrono::seconds(30)) {
        nnburst_model *opened = nullptr;
        check(nnburst_open_model(device.get(), name.c_str(), version, nanoseconds(timeout), &opened));
        model_.reset(opened);
    }
    /* From the bytes of its file, as one operation. */
    Model(const Device &device, const Memory &file,
          const nnburst_prepare_options &options = nnburst_prepare_options(),
          Duration timeout = std::chrono::seconds(60)) {
        nnburst_model *opened = nullptr;
        check(nnburst_prepare(device.get(), file.get(), &options, sizeof options, nanoseconds(timeout), &opened));
        model_.reset(opened);
    }
    std::string name() const { return nnburst_model_name(model_.get()); }
    std::uint32_t version() const noexcept { return nnburst_model_version(model_.get()); }
    std::uint32_t input_count() const noexcept { return nnburst_input_count(model_.get()); }
    std::uint32_t output_count() const noexcept { return nnburst_output_count(model_.get()); }
    std::uint32_t state_count() const noexcept { return nnburst_state_count(model_.get()); }
    /* Pointers in it are valid as long as the model is. */
    nnburst_operand input(std::uint32_t index) const {
        nnburst_operand operand;
        check(nnburst_input(model_.get(), index, &operand, sizeof operand));
        return operand;
    }
    nnburst_operand output(std::uint32_t index) const {
        nnburst_operand operand;
        check(nnburst_output(model_.get(), index, &operand, sizeof operand));
        return operand;
    }
    nnburst_model *get() const noexcept { return model_.get(); }

private:
    detail::Owner<nnburst_model, nnburst_close_model> model_;
};

class Burst {
public:
    explicit Burst(const Model &model, const nnburst_burst_options &options = nnburst_burst_options(),
                   Duration timeout = std::chrono::seconds(30)) {
        nnburst_burst *opened = nullptr;
        check(nnburst_open_burst(model.get(), &options, sizeof options, nanoseconds(timeout), &opened));
        burst_.reset(opened);
    }
    int fd() const noexcept { return nnburst_burst_fd(burst_.get()); }
    /* Whether there is a result to collect; if not, the descriptor shows the next one. */
    bool poll() {
        int code = nnburst_poll(burst_.get());
        if (code != NNBURST_INCOMPLETE) {
            check_run(code);
        }
        return code == NNBURST_NO_ERROR;
    }
    /* Waits for the oldest request that is out. */
    void collect(Duration timeout = std::chrono::seconds(30)) {
        nnburst_request *request = nullptr;
        check_run(nnburst_collect(burst_.get(), nanoseconds(timeout), &request));
    }
    nnburst_burst *get() const noexcept { return burst_.get(); }

private:
    detail::Owner<nnburst_burst, nnburst_close_burst> burst_;
};

struct Timing {
    std::chrono::microseconds on_device;
    std::chrono::microseconds in_driver;
};

class Request {
public:
    explicit Request(const Burst &burst) {
        nnburst_request *made = nullptr;
        check(nnburst_create_request(burst.get(), &made));
        request_.reset(made);
    }
    Request &set_input(std::uint32_t index, const Memory &memory, std::size_t offset, std::size_t length) {
        check(nnburst_set_input(request_.get(), index, memory.get(), offset, length));
        return *this;
    }
    Request &set_output(std::uint32_t index, const Memory &memory, std::size_t offset, std::size_t length) {
        check(nnburst_set_output(request_.get(), index, memory.get(), offset, length));
        return *this;
    }
    Request &set_input_dimensions(std::uint32_t index, const std::vector<std::uint32_t> &dimensions) {
        check(nnburst_set_input_dimensions(request_.get(), index, dimensions.data(),
                                           static_cast<std::uint32_t>(dimensions.size())));
        return *this;
    }
    Request &omit_input(std::uint32_t index) {
        check(nnburst_omit_input(request_.get(), index));
        return *this;
    }
    Request &set_measure(bool measure) {
        check(nnburst_set_measure(request_.get(), measure));
        return *this;
    }
    Request &bind() {
        check(nnburst_bind(request_.get()));
        return *this;
    }
    template <typename T> T *input(std::uint32_t index) const noexcept {
        return static_cast<T *>(nnburst_input_data(request_.get(), index));
    }
    template <typename T> const T *output(std::uint32_t index) const noexcept {
        return static_cast<const T *>(nnburst_output_data(request_.get(), index));
    }
    void run(Duration timeout = std::chrono::seconds(30)) {
        check_run(nnburst_run(request_.get(), nanoseconds(timeout)));
    }
    /* The same with a code instead of an exception. */
    int try_run(Duration timeout) noexcept { return nnburst_run(request_.get(), nanoseconds(timeout)); }
    void submit() { check_run(nnburst_submit(request_.get())); }
    void reset_states() { check(nnburst_reset_states(request_.get())); }
    Timing timing() const {
        std::uint64_t on_device = 0;
        std::uint64_t in_driver = 0;
        check(nnburst_timing(request_.get(), &on_device, &in_driver));
        return {std::chrono::microseconds(on_device), std::chrono::microseconds(in_driver)};
    }
    std::vector<std::uint32_t> output_dimensions(std::uint32_t index) const {
        std::vector<std::uint32_t> dimensions(64);
        std::uint32_t rank = 64;
        check(nnburst_output_dimensions(request_.get(), index, dimensions.data(), &rank));
        dimensions.resize(rank);
        return dimensions;
    }
    nnburst_request *get() const noexcept { return request_.get(); }

private:
    detail::Owner<nnburst_request, nnburst_free_request> request_;
};

enum class Role : std::uint32_t { writer = NNBURST_WRITER, reader = NNBURST_READER };

/* One end of a message queue of records, each of which is copied as it lies in memory. */
template <typename Record> class Queue {
    static_assert(std::is_trivially_copyable<Record>::value, "records are copied as they lie in memory");

public:
    /* Makes one; `name` may be empty for a queue that is sent. */
    Queue(const std::string &name, Role role, std::size_t capacity, std::uint32_t flags = 0) {
        nnburst_queue_options options = {};
        options.flags = flags;
        nnburst_queue *made = nullptr;
        check(nnburst_create_queue(name.empty() ? nullptr : name.c_str(), static_cast<std::uint32_t>(role),
                                   sizeof(Record), capacity, &options, sizeof options, &made));
        queue_.reset(made);
    }
    /* Opens one that another process makes. */
    static Queue open(const std::string &name, Role role, Duration timeout = std::chrono::seconds(30)) {
        nnburst_queue *opened = nullptr;
        check(nnburst_open_queue(name.c_str(), static_cast<std::uint32_t>(role), sizeof(Record), nullptr, 0,
                                 nanoseconds(timeout), &opened));
        return Queue(opened);
    }
    /* Receives one from the process at the other end of a Unix socket. */
    static Queue receive(int connection, Role role, Duration timeout = std::chrono::seconds(30)) {
        nnburst_queue *opened = nullptr;
        check(nnburst_receive_queue(connection, static_cast<std::uint32_t>(role), sizeof(Record), nullptr, 0,
                                    nanoseconds(timeout), &opened));
        return Queue(opened);
    }
    void send_to(int connection) const { check(nnburst_send_queue(connection, queue_.get())); }
    /* Whether there was room in time. */
    bool write(const Record *records, std::size_t count, Duration timeout = std::chrono::seconds(30)) {
        return in_time(nnburst_write(queue_.get(), records, count, nanoseconds(timeout)));
    }
    bool write(const Record &record, Duration timeout = std::chrono::seconds(30)) {
        return write(&record, 1, timeout);
    }
    /* Whether so many were there in time. */
    bool read(Record *records, std::size_t count, Duration timeout = std::chrono::seconds(30)) {
        return in_time(nnburst_read(queue_.get(), records, count, nanoseconds(timeout)));
    }
    bool read(Record &record, Duration timeout = std::chrono::seconds(30)) { return read(&record, 1, timeout); }
    std::size_t available() const noexcept { return nnburst_queue_available(queue_.get()); }
    std::uint64_t missed() const noexcept { return nnburst_queue_missed(queue_.get()); }
    nnburst_queue *get() const noexcept { return queue_.get(); }

private:
    explicit Queue(nnburst_queue *queue) : queue_(queue) {}
    static bool in_time(int code) {
        if (code != NNBURST_MISSED_DEADLINE) {
            check_run(code);
        }
        return code == NNBURST_NO_ERROR;
    }
    detail::Owner<nnburst_queue, nnburst_close_queue> queue_;
};

} /* namespace nnburst */

#endif
