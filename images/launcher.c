/* The agent's `python`: starts the CPython that lies beside it, with the loader and the libraries that lie there too.

   Static, so that it starts in any image, and with whatever LD_PRELOAD the image sets. Names that begin with LD_ are
   kept from our loader by a prefix; the agent takes it off again for the user's command. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEPT "FFDL_KEPT_" /* steps/environment.py knows it */
enum { LONGEST = 4096 };

static char folder[LONGEST], loader[LONGEST + 32], library[LONGEST + 32], python[LONGEST + 32], own[LONGEST + 32];

static int fails(const char *what) {
    fprintf(stderr, "ffdl: the agent can't start: %s: %s\n", what, strerror(errno));
    return 75; /* again, please */
}

int main(int count, char **arguments, char **environment) {
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (length < 1)
        return fails("/proc/self/exe");
    folder[length] = 0;
    strcpy(own, folder);
    *strrchr(folder, '/') = 0;
    sprintf(loader, "%s/lib/loader", folder);
    sprintf(library, "%s/lib", folder);
    sprintf(python, "%s/bin/python3", folder);

    for (char **variable = environment; *variable; variable++)
        if (!strncmp(*variable, "LD_", 3)) {
            char *kept = malloc(sizeof KEPT + strlen(*variable));
            if (!kept)
                return fails(*variable);
            *variable = strcat(strcpy(kept, KEPT), *variable);
        }

    /* -I: no PYTHON variable and no folder of the user's has a say. UTF-8 without a locale set for our children */
    char *first[] = {own, "--inhibit-cache", "--library-path", library, "--argv0", own, python, "-I", "-X", "utf8"};
    size_t known = sizeof first / sizeof *first;
    char **all = calloc(known + count, sizeof *all);
    if (!all)
        return fails(own);
    memcpy(all, first, sizeof first);
    memcpy(all + known, arguments + 1, (count > 0 ? count - 1 : 0) * sizeof *all);
    execve(loader, all, environment);
    return fails(loader);
}
