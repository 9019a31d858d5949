/* Count the instructions of a program under qemu-user, in a file that the program may map.

   qemu-arm -plugin insn.so,count=FILE ...: the first 8 bytes of the file are the count, little-endian. Each block of code adds
   its length as it begins, so that a reading is ahead by less than a block. Instructions of all threads are counted.

   The declarations are those of qemu's plugin interface, so that no header of it is needed: those named here are
   the same in version 1 (to qemu 8.2) and 2 (from 9.0).  */

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef uint64_t Plugin;
typedef struct qemu_plugin_tb Block;
typedef void Translated(Plugin, Block *);
typedef void Begun(unsigned processor, void *data);

enum { NO_REGISTERS };

void qemu_plugin_register_vcpu_tb_trans_cb(Plugin, Translated *);
void qemu_plugin_register_vcpu_tb_exec_cb(Block *, Begun *, int flags, void *data);
size_t qemu_plugin_tb_n_insns(const Block *);

int qemu_plugin_version = VERSION;
static uint64_t *count;

static void begun(unsigned processor, void *length) {
    (void)processor;
    __atomic_fetch_add(count, (uintptr_t)length, __ATOMIC_RELAXED); /* an inline add of qemu's loses counts of threads */
}

static void translated(Plugin plugin, Block *block) {
    (void)plugin;
    qemu_plugin_register_vcpu_tb_exec_cb(block, begun, NO_REGISTERS, (void *)qemu_plugin_tb_n_insns(block));
}

int qemu_plugin_install(Plugin plugin, const void *info, int argc, char **argv) {
    static const char name[] = "count=";
    (void)info;
    if (argc != 1 || strncmp(argv[0], name, sizeof name - 1)) return 1;
    int file = open(argv[0] + sizeof name - 1, O_RDWR | O_CLOEXEC);
    if (file < 0) return 1;
    count = mmap(NULL, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (count == MAP_FAILED) return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated);
    return 0;
}
