/* DPDK's mempool with its per-core cache, as a program would use it: the calls are inline functions
 * of its headers, so the loops that are timed are here. */

#include <stdint.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mempool.h>

#define BURST_MAX 64

/* Starts DPDK without huge pages and devices; the calling thread becomes a core. 0, or an errno. */
int quarry_dpdk_start(char *core)
{
	char *arguments[] = {
		"quarry", "--no-huge", "-m", "128", "--no-pci", "--no-telemetry", "--no-shconf",
		"--log-level=critical", "-l", core,
	};
	int status = rte_eal_init(sizeof(arguments) / sizeof(*arguments), arguments);
	return status < 0 ? rte_errno : 0;
}

/* A pool of objects of a page; null if it cannot be had. */
void *quarry_dpdk_pool(unsigned int objects, unsigned int object_bytes, unsigned int cache)
{
	return rte_mempool_create("quarry", objects, object_bytes, cache, 0, NULL, NULL, NULL, NULL,
				  SOCKET_ID_ANY, 0);
}

/* Makes the calling thread a core of its own with a cache, if it is none: 1 then, 0 if it was one
 * already, and an errno below 0 if that fails. */
int quarry_dpdk_enter(void)
{
	if (rte_lcore_id() != LCORE_ID_ANY)
		return 0;
	return rte_thread_register() < 0 ? -rte_errno : 1;
}

void quarry_dpdk_leave(void)
{
	rte_thread_unregister();
}

int quarry_dpdk_get(void *pool, void **objects, unsigned int count)
{
	return rte_mempool_get_bulk(pool, objects, count);
}

void quarry_dpdk_put(void *pool, void **objects, unsigned int count)
{
	rte_mempool_put_bulk(pool, objects, count);
}

/* Gets so many objects one by one. */
int quarry_dpdk_get_each(void *pool, void **objects, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		if (rte_mempool_get(pool, &objects[i]) != 0)
			return -1;
		__asm__ volatile("" : : : "memory");
	}
	return 0;
}

/* Puts so many objects one by one. */
void quarry_dpdk_put_each(void *pool, void **objects, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		rte_mempool_put(pool, objects[i]);
		__asm__ volatile("" : : : "memory");
	}
}

/* Gets one object and puts it back, so many times. */
void quarry_dpdk_singles(void *pool, uint64_t times)
{
	for (uint64_t i = 0; i < times; i++) {
		void *object = NULL;
		if (rte_mempool_get(pool, &object) != 0)
			return;
		__asm__ volatile("" : "+r"(object) : : "memory");
		rte_mempool_put(pool, object);
	}
}

/* Gets a burst and puts it back, so many times. */
void quarry_dpdk_bursts(void *pool, uint64_t times, unsigned int burst)
{
	void *objects[BURST_MAX];
	if (burst > BURST_MAX)
		return;
	for (uint64_t i = 0; i < times; i++) {
		if (rte_mempool_get_bulk(pool, objects, burst) != 0)
			return;
		__asm__ volatile("" : : "r"(objects) : "memory");
		rte_mempool_put_bulk(pool, objects, burst);
	}
}
