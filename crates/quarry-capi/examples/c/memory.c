/* Memory of any size by the kmalloc family: a table that grows, a key that is wiped, a block larger than any slab. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quarry.h>

int main(void)
{
    size_t count = 0, room = 4;
    int *squares = kmalloc_array(room, sizeof(*squares), GFP_KERNEL), *larger;
    char *key, *image;

    if (squares == NULL)
        return EXIT_FAILURE;
    for (int i = 0; i < 1000; i++) {
        if (count == room) {
            room *= 2;
            larger = krealloc_array(squares, room, sizeof(*squares), GFP_KERNEL);
            if (larger == NULL)
                return EXIT_FAILURE;
            squares = larger;
        }
        squares[count++] = i * i;
    }
    printf("%zu squares, the last is %d, in %zu bytes\n", count, squares[count - 1], ksize(squares));
    kfree(squares);

    key = kzalloc(32, GFP_KERNEL);
    if (key == NULL)
        return EXIT_FAILURE;
    strcpy(key, "a secret");
    kfree_sensitive(key);

    /* kmalloc ends at 4 MiB; kvmalloc goes on with mappings. */
    errno = 0;
    if (kmalloc(64 << 20, GFP_KERNEL) != NULL || errno != ENOMEM)
        return EXIT_FAILURE;
    image = kvzalloc(64 << 20, GFP_KERNEL);
    if (image == NULL)
        return EXIT_FAILURE;
    image[(64 << 20) - 1] = 1;
    image = kvrealloc(image, 128 << 20, GFP_KERNEL);
    if (image == NULL || image[(64 << 20) - 1] != 1)
        return EXIT_FAILURE;
    kvfree(image);

    /* No elements of that size: the product is larger than any memory. */
    if (kcalloc(SIZE_MAX / 2, 4, GFP_KERNEL) != NULL || errno != ENOMEM)
        return EXIT_FAILURE;
    return EXIT_SUCCESS;
}
