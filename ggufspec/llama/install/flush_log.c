/* Writes the end of a program's log before the program ends; see environment.py.

   The names are C++'s for common_log_main() and common_log_flush(common_log *), of llama.cpp's common/log.h. */

#define _GNU_SOURCE
#include <dlfcn.h>

__attribute__((destructor)) static void flush_log(void) {
    void *(*find)(void) = (void *(*)(void)) dlsym(RTLD_DEFAULT, "_Z15common_log_mainv");
    void (*flush)(void *) = (void (*)(void *)) dlsym(RTLD_DEFAULT, "_Z16common_log_flushP10common_log");
    if (find && flush) {
        flush(find());
    }
}
