/* Forks twice; all three processes end by the return of main. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    void *volatile kept = malloc(1000);
    for (int i = 0; i < 2; i++)
        if (fork() == 0)
            return kept == NULL;
    int status;
    while (wait(&status) > 0)
        if (status != 0)
            return 1;
    return 0;
}
