/* A file that holds an ext4 file system, as a mount that is nowhere yet. See launch_image.h.
 *
 * Nothing of it can be left behind. The loop device lets go of the file with its last user
 * (autoclear): that is our descriptor at first, and the mount afterwards, which lives as long as the
 * sandbox's mount namespace. The lock on the file belongs to the open file that the loop device
 * holds, so it is free exactly when the device is: whoever has the lock is alone with the file.
 *
 * Two devices on one file would be two file systems that know nothing of each other. So a file that
 * several sandboxes share has one device, whose file system the kernel mounts as often as it is asked
 * to: who does not get the lock looks for the device.
 */
#define _GNU_SOURCE
#include "launch_image.h"

#include "launch.h"
#include "launch_sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A sandbox that has just ended is unmounted a moment later. */
#define BUSY_MS 10000
#define PAUSE_MS 5
/* Between asking for a free loop device and taking it, somebody else may be quicker. */
#define ATTEMPTS 64

/* The device that has the file IMAGE, held open, so that it can't let go of it any more; -1: none has. */
static int find_loop(int image, char *path, size_t size) {
    struct stat st;
    DIR *devices = opendir("/dev");
    if (!devices || fstat(image, &st) < 0) launch_fail("loop", "/dev");
    int found = -1;
    for (struct dirent *entry; found < 0 && (entry = readdir(devices));) {
        struct loop_information info;
        unsigned number;
        char rest;
        if (sscanf(entry->d_name, "loop%u%c", &number, &rest) != 1) continue;
        snprintf(path, size, "/dev/loop%u", number);
        int loop = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (loop < 0) continue;
        if (ioctl(loop, LOOP_GET_STATUS64, &info) == 0 && info.device == st.st_dev &&
            info.inode == st.st_ino)
            found = loop;
        else
            close(loop);
    }
    closedir(devices);
    return found;
}

static int attach_loop(int image, char *path, size_t size);

/* A device that has the file PATH: a new one, or with SHARED the one that has it already. */
static int open_loop(const char *path, bool shared, char *device, size_t size) {
    int image = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW), loop = -1;
    if (image < 0) launch_fail("image", path);
    for (int waited = 0; flock(image, LOCK_EX | LOCK_NB) < 0; waited += PAUSE_MS) {
        if (errno != EWOULDBLOCK || waited >= BUSY_MS) launch_fail("image-lock", path);
        if (shared && (loop = find_loop(image, device, size)) >= 0) break;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    }
    if (loop < 0) loop = attach_loop(image, device, size);
    close(image);
    return loop;
}

static int attach_loop(int image, char *path, size_t size) {
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0) launch_fail("loop", "/dev/loop-control");
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        if (number < 0) launch_fail("loop", "/dev/loop-control");
        snprintf(path, size, "/dev/loop%d", number);
        int loop = open(path, O_RDWR | O_CLOEXEC);
        if (loop < 0) launch_fail("loop", path);
        struct loop_configuration configuration = {
            .fd = (uint32_t)image,
            .block_size = 4096,
            .info.flags = LO_FLAGS_AUTOCLEAR,
        };
        if (ioctl(loop, LOOP_CONFIGURE, &configuration) == 0) {
            close(control);
            return loop;
        }
        if (errno != EBUSY) launch_fail("loop", path);
        close(loop);
    }
    launch_fail("loop", "no free device");
}

static void set_option(int context, unsigned kind, const char *key, const char *value) {
    if (syscall(SYS_fsconfig, context, kind, key, value, 0) < 0) launch_fail("image-mount", key);
}

int image_mount(const char *path, bool shared) {
    char device[32];
    int loop = open_loop(path, shared, device, sizeof device);
    int context = (int)syscall(SYS_fsopen, "ext4", FSOPEN_CLOEXEC);
    if (context < 0) launch_fail("image-mount", "ext4");
    set_option(context, FSCONFIG_SET_STRING, "source", device);
    /* What a guest removes is given back to the host; the tables are not written before their time. */
    set_option(context, FSCONFIG_SET_FLAG, "discard", NULL);
    set_option(context, FSCONFIG_SET_FLAG, "noinit_itable", NULL);
    if (syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        launch_fail("image-mount", path);
    int mount = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, 0);
    if (mount < 0) launch_fail("image-mount", "fsmount");
    close(context);
    close(loop);
    return mount;
}
