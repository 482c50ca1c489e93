/* One binary, three programs. On the host, `agentd launch …` builds a sandbox, `agentd network …` opens the
 * way out of one that runs, `agentd remove …` takes its files away, `agentd measure …` counts them, and
 * `agentd unpack …` and `agentd pack …` turn archives into layers and back. Inside, as PID 1 and without
 * arguments, it is the agent; `agentd probe`, inside as any other process, tries what can be reached from
 * there. */
#include <string.h>

#include "agent.h"
#include "launch.h"
#include "launch_engine.h"
#include "layer_box.h"
#include "network.h"
#include "probe.h"

/* Some engines can start us only by a path, which means nothing inside: every process of ours is to be
 * found by one name. */
static void take_name(char *own) {
    static const char name[] = "agentd";
    size_t room = own ? strlen(own) : 0;

    if (room < sizeof(name) - 1)
        return;
    memset(own, 0, room);
    memcpy(own, name, sizeof(name) - 1);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "launch") == 0)
        return launch_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "keep") == 0)
        return keep_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "network") == 0)
        return network_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "remove") == 0)
        return remove_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "unpack") == 0)
        return unpack_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "pack") == 0)
        return pack_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "measure") == 0)
        return measure_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "probe") == 0)
        return probe_main(argc, argv);
    take_name(argv[0]);
    agent_main();
}
