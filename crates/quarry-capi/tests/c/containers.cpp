// Containers of the standard library on caches and on the heap of the process.
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <quarry.hpp>

// Objects of a cache's slabs, free ones included.
static long objects(const char *name)
{
    char text[64];
    assert(slab_attribute_read(name, "total_objects", text, sizeof(text)) > 0);
    return std::atol(text);
}

struct alignas(64) Line {
    char bytes[64];
};

static bool is_aligned(const void *block, std::size_t align)
{
    return reinterpret_cast<std::uintptr_t>(block) % align == 0;
}

static void resources()
{
    quarry::cache nodes("cpp-node", 64);
    {
        std::pmr::unordered_map<int, std::pmr::string> names(&nodes);
        for (int number = 0; number < 1000; number++)
            names.emplace(number, "a string that is longer than what a string has room for");
        // The nodes and the texts, which are 56 bytes; the buckets are the heap's.
        assert(objects("cpp-node") >= 2000);
        assert(names.at(7).get_allocator().resource() == &nodes);
        for (int number = 0; number < 1000; number += 2)
            names.erase(number);
        std::pmr::unordered_map<int, std::pmr::string> others(std::move(names));
        assert(others.size() == 500 && others.at(999).size() == 55);
    }
    // Requests beyond the objects' size or alignment.
    std::pmr::vector<int> numbers(&nodes);
    for (int number = 0; number < 100000; number++)
        numbers.push_back(number);
    assert(numbers[99999] == 99999);
    std::pmr::vector<Line> lines(9, &nodes);
    assert(is_aligned(lines.data(), 64) && !nodes.serves(64, 64) && nodes.serves(64, 16) && !nodes.serves(65, 1));
    assert(nodes.is_equal(nodes) && !nodes.is_equal(*quarry::process_heap()));
    assert(quarry::process_heap()->is_equal(quarry::heap_resource()));
}

static void heap()
{
    std::pmr::memory_resource *heap = quarry::process_heap();
    for (std::size_t align = 1; align <= 4096; align *= 2)
        for (std::size_t bytes : {std::size_t(0), std::size_t(1), std::size_t(24), std::size_t(100), align, 3 * align + 1,
                                  std::size_t(5 << 20)}) {
            void *block = heap->allocate(bytes, align);
            assert(is_aligned(block, align));
            std::memset(block, 1, bytes);
            heap->deallocate(block, bytes, align);
        }
    try {
        (void)heap->allocate(std::size_t(1) << 62, 8);
        std::abort();
    } catch (const std::bad_alloc &) {
    }
    std::vector<std::string, quarry::allocator<std::string>> texts(1000, "text");
    assert(texts.back() == "text");
}

static void allocators()
{
    quarry::cache first("cpp-list", 32), second("cpp-list", 32);
    using List = std::list<long, quarry::allocator<long>>;
    List list(&first), other(&second);
    for (long number = 0; number < 500; number++)
        list.push_back(number);
    assert(objects("cpp-list") == 0 && list.get_allocator() != other.get_allocator());
    // The contents take their allocator with them.
    std::swap(list, other);
    assert(other.get_allocator() == quarry::allocator<int>(&first) && list.empty());
    list = other;
    assert(list.get_allocator().source() == &first && list.size() == 500);
    other.push_back(1);
    // Any thread frees.
    std::thread([&] { other.clear(); }).join();
    std::map<int, int, std::less<int>, quarry::allocator<std::pair<const int, int>>> map(&second);
    map[3] = 4;
    assert(map.at(3) == 4 && kmem_cache_size(first.native_handle()) == 32);
    auto shared = std::allocate_shared<long>(quarry::allocator<long>(&first), 5L);
    assert(*shared == 5);
    quarry::allocator<long> plain;
    try {
        (void)plain.allocate(std::size_t(1) << 62);
        std::abort();
    } catch (const std::bad_array_new_length &) {
    }
}

static void errors()
{
    const std::pair<const char *, std::size_t> wrong[] = {{"two words", 8}, {"cpp-zero", 0}, {"cpp-large", std::size_t(1) << 33}};
    for (auto [name, size] : wrong)
        try {
            quarry::cache refused(name, size);
            std::abort();
        } catch (const std::system_error &error) {
            assert(error.code().value() == EINVAL);
        }
}

int main()
{
    resources();
    heap();
    allocators();
    errors();
    // What is left is said, and nothing else.
    quarry::cache left("cpp-left", 48);
    (void)left.allocate(48);
    std::puts("ok");
}
