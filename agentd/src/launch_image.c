/* A file that holds an ext4 file system, as a mount that is nowhere yet. See launch_image.h.
 *
 * Nothing of it can be left behind. The loop device lets go of the file with its last user
 * (autoclear): that is our descriptor at first, and the mount afterwards, which lives as long as the
 * sandbox's mount namespace. The lock on the file belongs to the open file that the loop device
 * holds, so it is free exactly when the device is: whoever has the lock is alone with the file.
 */
#define _GNU_SOURCE
#include "launch_image.h"

#include "launch.h"
#include "launch_sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A sandbox that has just ended is unmounted a moment later. */
#define BUSY_MS 10000
#define PAUSE_MS 5
/* Between asking for a free loop device and taking it, somebody else may be quicker. */
#define ATTEMPTS 64

static int open_alone(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) launch_fail("image", path);
    for (int waited = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; waited += PAUSE_MS) {
        if (errno != EWOULDBLOCK || waited >= BUSY_MS) launch_fail("image-lock", path);
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    }
    return fd;
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

int image_mount(const char *path) {
    char device[32];
    int image = open_alone(path);
    int loop = attach_loop(image, device, sizeof device);
    close(image);
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
