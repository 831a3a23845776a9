// Objects of a cache in C++: an owner that gives them back, and a container whose memory is the heap's.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include <quarry.hpp>

// A cache for objects of one type, which `std::unique_ptr` owns.
template <typename T> class Cache {
public:
    struct Free {
        kmem_cache *cache;
        void operator()(T *object) const
        {
            object->~T();
            kmem_cache_free(cache, object);
        }
    };
    using Owned = std::unique_ptr<T, Free>;

    explicit Cache(const char *name) : cache(kmem_cache_create(name, sizeof(T), alignof(T), 0, nullptr))
    {
        if (cache == nullptr)
            throw std::bad_alloc();
    }
    Cache(const Cache &) = delete;
    ~Cache() { kmem_cache_destroy(cache); }

    template <typename... Arguments> Owned make(Arguments &&...arguments)
    {
        void *place = kmem_cache_alloc(cache, GFP_KERNEL);
        if (place == nullptr)
            throw std::bad_alloc();
        return Owned(new (place) T(std::forward<Arguments>(arguments)...), Free{cache});
    }

private:
    kmem_cache *cache;
};

struct Order {
    int number;
    double price;
};

int main()
{
    Cache<Order> orders("order");
    std::vector<Cache<Order>::Owned, quarry::allocator<Cache<Order>::Owned>> book;
    for (int number = 0; number < 1000; number++)
        book.push_back(orders.make(Order{number, number * 0.5}));
    double sum = 0;
    // Another thread frees them.
    std::thread([&] {
        for (auto &order : book)
            sum += order->price;
        book.clear();
    }).join();
    std::printf("%.1f\n", sum);
    return sum == 249750.0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
