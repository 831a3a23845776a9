/* One mistake, by its name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **arguments)
{
    char *block = malloc(100), *neighbour = malloc(100), *volatile mistake = block;
    const char *what = count > 1 ? arguments[1] : "";
    if (strcmp(what, "double") == 0) {
        free(block);
    } else if (strcmp(what, "stack") == 0) {
        mistake = (char *)&what;
    } else if (strcmp(what, "mapping") == 0) {
        mistake = (char *)malloc(9 << 20) + 4096;
    } else if (strcmp(what, "sixteen") == 0 || strcmp(what, "realloc") == 0) {
        /* A block of no bytes, to the kernel. */
        mistake = (char *)16;
    } else {
        return 2;
    }
    fprintf(stderr, "%p\n", (void *)mistake);
    if (strcmp(what, "realloc") == 0)
        mistake = realloc(mistake, 200);
    free(mistake);
    return neighbour == NULL;
}
