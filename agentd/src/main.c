/* One binary, three programs: on the host, `agentd launch …` builds a sandbox and `agentd remove …`
 * takes its files away; inside, as PID 1 and without arguments, it is the agent; `agentd probe`,
 * inside as any other process, tries what can be reached from there. */
#include <string.h>

#include "agent.h"
#include "launch.h"
#include "probe.h"

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "launch") == 0)
        return launch_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "remove") == 0)
        return remove_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "probe") == 0)
        return probe_main(argc, argv);
    agent_main();
}
