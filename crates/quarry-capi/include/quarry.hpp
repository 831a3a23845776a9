/*
 * Quarry in C++17: caches and the heap of the process as memory resources (std::pmr) and as an allocator of containers.
 *
 *     quarry::cache sessions("session", sizeof(Session), alignof(Session));
 *     std::pmr::unordered_map<int, Session> by_number(&sessions);
 *     std::list<Session, quarry::allocator<Session>> queue(&sessions);
 *
 * Nodes of containers are larger than their values, by some pointers: the size of a cache is that of the nodes. What is larger
 * than its objects, such as a table of buckets, comes from the heap of the process.
 */
#ifndef QUARRY_HPP
#define QUARRY_HPP

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <new>
#include <system_error>
#include <type_traits>

#include <quarry.h>

namespace quarry {

/** Alignment of all blocks of 16 bytes and more. */
inline constexpr std::size_t block_align = 16;

/**
 * Allocates memory of any size from the heap of the process: `kvmalloc` with an alignment.
 *
 * Throws std::bad_alloc when memory is exhausted, or if no block is aligned to `align`: above 4096 with more than 4 MiB.
 */
[[nodiscard]] inline void *heap_allocate(std::size_t bytes, std::size_t align)
{
    if (bytes < align)
        bytes = align;
    if (align > block_align) {
        // A size that is a power of two is the block's alignment.
        std::size_t power = align;
        while (power < bytes && power <= std::numeric_limits<std::size_t>::max() / 2)
            power *= 2;
        if (power >= bytes)
            bytes = power;
    }
    void *block = kvmalloc(bytes, GFP_KERNEL);
    if (block == nullptr)
        throw std::bad_alloc();
    if (reinterpret_cast<std::uintptr_t>(block) % align != 0) {
        kvfree(block);
        throw std::bad_alloc();
    }
    return block;
}

/** Frees a block of `heap_allocate`. */
inline void heap_deallocate(void *block) noexcept { kvfree(block); }

/** The heap of the process as a memory resource. */
class heap_resource final : public std::pmr::memory_resource {
    void *do_allocate(std::size_t bytes, std::size_t align) override { return heap_allocate(bytes, align); }
    void do_deallocate(void *block, std::size_t, std::size_t) override { heap_deallocate(block); }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        return this == &other || dynamic_cast<const heap_resource *>(&other) != nullptr;
    }
};

/** The resource of the heap. It is never destroyed, so that containers in statics may use it. */
inline heap_resource *process_heap()
{
    static heap_resource *const heap = new heap_resource;
    return heap;
}

/**
 * A cache of objects of one size, as a memory resource: requests up to its size and alignment are its objects, others are the
 * heap's. All threads may use it.
 *
 * It outlives its containers. Objects that are left when it is destroyed are reported on the standard error output, with
 * their number and the cache's name, and the cache stays.
 */
class cache final : public std::pmr::memory_resource {
public:
    /**
     * Makes a cache; the arguments are those of `kmem_cache_create`. Throws std::system_error with its errno.
     */
    cache(const char *name, std::size_t size, std::size_t align = alignof(std::max_align_t), slab_flags_t flags = 0)
        : size_(size), align_(align)
    {
        constexpr std::size_t limit = std::numeric_limits<unsigned int>::max();
        // An alignment of 0 is that of the default, which `serves` has to know.
        if (size > limit || align > limit || align == 0)
            throw std::system_error(EINVAL, std::generic_category(), "quarry::cache");
        handle_ = kmem_cache_create(name, static_cast<unsigned int>(size), static_cast<unsigned int>(align), flags, nullptr);
        if (handle_ == nullptr)
            throw std::system_error(errno, std::generic_category(), "quarry::cache");
    }
    cache(const cache &) = delete;
    cache &operator=(const cache &) = delete;
    ~cache() override { kmem_cache_destroy(handle_); }

    /** True if a request is served by an object of the cache. */
    [[nodiscard]] bool serves(std::size_t bytes, std::size_t align) const noexcept
    {
        return bytes <= size_ && align <= align_;
    }

    /** The cache, for the functions of quarry.h. */
    [[nodiscard]] kmem_cache *native_handle() const noexcept { return handle_; }

private:
    void *do_allocate(std::size_t bytes, std::size_t align) override
    {
        if (!serves(bytes, align))
            return heap_allocate(bytes, align);
        if (void *object = kmem_cache_alloc(handle_, GFP_KERNEL))
            return object;
        throw std::bad_alloc();
    }
    void do_deallocate(void *block, std::size_t bytes, std::size_t align) override
    {
        if (serves(bytes, align))
            kmem_cache_free(handle_, block);
        else
            heap_deallocate(block);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }

    kmem_cache *handle_;
    std::size_t size_;
    std::size_t align_;
};

/** An allocator for containers: of a cache, or of the heap of the process. It goes with the container's contents. */
template <typename T> class allocator {
public:
    using value_type = T;
    using propagate_on_container_copy_assignment = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;

    /** Of the heap of the process. */
    allocator() noexcept = default;
    /** Of a cache. */
    allocator(cache *source) noexcept : cache_(source) {}
    template <typename U> allocator(const allocator<U> &other) noexcept : cache_(other.source()) {}

    [[nodiscard]] T *allocate(std::size_t count)
    {
        if (count > std::numeric_limits<std::size_t>::max() / sizeof(T))
            throw std::bad_array_new_length();
        const std::size_t bytes = count * sizeof(T);
        void *block = cache_ != nullptr ? cache_->allocate(bytes, alignof(T)) : heap_allocate(bytes, alignof(T));
        return static_cast<T *>(block);
    }
    void deallocate(T *block, std::size_t count) noexcept
    {
        if (cache_ != nullptr)
            cache_->deallocate(block, count * sizeof(T), alignof(T));
        else
            heap_deallocate(block);
    }

    /** The cache; null for the heap of the process. */
    [[nodiscard]] cache *source() const noexcept { return cache_; }

private:
    cache *cache_ = nullptr;
};

/** True if each may free what the other allocated. */
template <typename T, typename U> bool operator==(const allocator<T> &left, const allocator<U> &right) noexcept
{
    return left.source() == right.source();
}
template <typename T, typename U> bool operator!=(const allocator<T> &left, const allocator<U> &right) noexcept
{
    return !(left == right);
}

} // namespace quarry

#endif // QUARRY_HPP
