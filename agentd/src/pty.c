#define _GNU_SOURCE
#include "pty.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "sys.h"
#include "util.h"

/* A path under /dev/pts for kernels without TIOCGPTPEER (before 4.13). */
static int open_slave_by_name(int master) {
    char path[32] = "/dev/pts/";
    char digits[12];
    unsigned number;
    size_t n = sizeof(digits), len = strlen(path);

    if (ioctl(master, TIOCGPTN, &number) < 0)
        return -1;
    do
        digits[--n] = (char)('0' + number % 10);
    while (number /= 10);
    memcpy(path + len, digits + n, sizeof(digits) - n);
    path[len + sizeof(digits) - n] = '\0';
    return open(path, O_RDWR | O_NOCTTY | O_CLOEXEC | O_NOFOLLOW);
}

static void make_sane(int slave) {
    struct termios t;

    if (tcgetattr(slave, &t) < 0)
        return;
    t.c_iflag = ICRNL | IXON | IUTF8;
    t.c_oflag = OPOST | ONLCR;
    t.c_cflag = CS8 | CREAD | (t.c_cflag & CBAUD);
    t.c_lflag = ISIG | ICANON | IEXTEN | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE;
    t.c_cc[VEOF] = 4;
    t.c_cc[VINTR] = 3;
    (void)tcsetattr(slave, TCSANOW, &t);
}

int pty_open(const struct user_ids *user, uint64_t rows, uint64_t cols, int *master, int *slave) {
    int unlock = 0;
    uid_t before;
    int err;

    /* The slave's owner is who opens the master. */
    before = (uid_t)setfsuid(user->uid);
    *master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    err = errno;
    (void)setfsuid(before);
    if (*master < 0 && err == EACCES) {
        *master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
        err = errno;
    }
    if (*master < 0)
        return err;
    if (ioctl(*master, TIOCSPTLCK, &unlock) < 0)
        goto failed;
    *slave = ioctl(*master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*slave < 0)
        *slave = open_slave_by_name(*master);
    if (*slave < 0)
        goto failed;
    (void)!fchown(*slave, user->uid, (gid_t)-1);
    make_sane(*slave);
    pty_resize(*master, rows, cols);
    return 0;
failed:
    err = errno;
    close(*master);
    *master = -1;
    return err;
}

void pty_resize(int master, uint64_t rows, uint64_t cols) {
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};

    (void)ioctl(master, TIOCSWINSZ, &size);
}
