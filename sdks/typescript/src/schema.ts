// Generated from docs/reference/openapi.json by `npm run generate`. Change that, not this.

export interface paths {
    "/v1/version": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Version, process and state directory of the daemon */
        get: operations["getVersion"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/status": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** How many sandboxes and jobs there are, and what the daemon itself takes */
        get: operations["getStatus"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/shutdown": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** End the daemon; sandboxes and jobs go on */
        post: operations["shutDown"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Sandboxes by label and state, in the order they were made */
        get: operations["listSandboxes"];
        put?: never;
        /** Make a sandbox and start it; 200: a repetition, it was there */
        post: operations["createSandbox"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A sandbox, what holds in it, what enforces that, and what it has used */
        get: operations["getSandbox"];
        put?: never;
        post?: never;
        /** End a sandbox and remove every trace but its events */
        delete: operations["removeSandbox"];
        options?: never;
        head?: never;
        /** Change its name, labels and clocks: what is left out stays, null takes away */
        patch: operations["updateSandbox"];
        trace?: never;
    };
    "/v1/sandboxes/{id}/usage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What a sandbox has used since it was started, or in its last run */
        get: operations["getSandboxUsage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/start": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Run a stopped sandbox again */
        post: operations["startSandbox"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/stop": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** End every process of a sandbox and keep its files */
        post: operations["stopSandbox"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/extend": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Begin a sandbox's time to live anew, from now */
        post: operations["extendSandbox"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/probe": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Try from inside what a guest can reach */
        post: operations["probeSandbox"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/ports": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The published ports of a sandbox, and whether each is open */
        get: operations["listPorts"];
        put?: never;
        /** Open a port of a sandbox on the daemon's machine, and as preview */
        post: operations["publishPort"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/ports/{port}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** Close a published port and what is connected to it */
        delete: operations["unpublishPort"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/workspace/diff": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What a sandbox has changed in its copy-on-write workspace */
        get: operations["diffWorkspace"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/workspace/apply": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Make a sandbox's changes in the directory itself; needs the scope host-paths */
        post: operations["applyWorkspace"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/workspace": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** Forget the changes of a stopped sandbox in its workspace */
        delete: operations["discardWorkspace"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/volumes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** All volumes, and which sandboxes have them */
        get: operations["listVolumes"];
        put?: never;
        /** Make an empty volume */
        post: operations["createVolume"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/volumes/{volume}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A volume, who has it, and what it takes on the disk */
        get: operations["getVolume"];
        put?: never;
        post?: never;
        /** Remove a volume with all that is in it */
        delete: operations["removeVolume"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/volumes/{volume}/archive": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** All that is in a volume, as tar */
        get: operations["exportVolume"];
        /** Make a new volume from tar; it is there whole, or not at all */
        put: operations["importVolume"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/exec": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Run a command to its end in a sandbox that runs */
        post: operations["execInSandbox"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/run": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Run a command to its end in a sandbox of its own, which is removed then */
        post: operations["run"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/exec/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A command in a sandbox, both directions while it runs */
        get: operations["streamExecInSandbox"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/run/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The same in a sandbox of its own, which ends with the stream */
        get: operations["streamRun"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/run/batch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Run many commands, each in a sandbox of its own, a few at a time */
        post: operations["runBatch"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/jobs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The jobs of a sandbox */
        get: operations["listSandboxJobs"];
        put?: never;
        /** Start a command that goes on without anybody listening */
        post: operations["startJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/jobs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The jobs of all sandboxes, in the order they were started */
        get: operations["listJobs"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/jobs/{job}/output": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A job's output from any offset and live, as events; nobody else may be attached */
        get: operations["streamJobOutput"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/jobs/{job}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A job */
        get: operations["getJob"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/jobs/{job}/signal": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Send a job a signal, or end it with all it started */
        post: operations["signalJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/jobs/{job}/attach": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A job's output from any offset and live, and its stdin */
        get: operations["attachJob"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/files": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The content of a file, or a range of it */
        get: operations["readFile"];
        /** Replace a file, whole or not at all, or append to it */
        put: operations["writeFile"];
        /** Write several files below a directory; each part's filename says where */
        post: operations["uploadFiles"];
        /** Remove a file, or a directory with all that is in it */
        delete: operations["removeFile"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/stat": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What a file is */
        get: operations["statFile"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/list": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The files of a directory */
        get: operations["listFiles"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/mkdir": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Make a directory */
        post: operations["makeDirectory"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/move": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Move a file or a directory */
        post: operations["moveFile"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/tree": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What is below a directory, as tar */
        get: operations["downloadTree"];
        /** Unpack tar into a directory */
        put: operations["uploadTree"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/watch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What changes in a directory, or of a file, as it happens */
        get: operations["watchFiles"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What happens to sandboxes and jobs, as it happens */
        get: operations["streamEvents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/logs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What happened to a sandbox, also of one that is gone, by its id */
        get: operations["streamSandboxLogs"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/network": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What a sandbox may reach, and its traffic so far */
        get: operations["getNetwork"];
        /** Another network; what is not allowed any more is closed */
        put: operations["replaceNetwork"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/network/rules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Put a rule before all others */
        post: operations["addNetworkRule"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/network/phase": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Go on with the policy of another phase */
        post: operations["switchNetworkPhase"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/network/why": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What would become of a connection or a request, and why */
        get: operations["explainNetwork"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sandboxes/{id}/network/log": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Every decision about a sandbox's connections, with its rule */
        get: operations["streamNetworkLog"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/images": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The images that are here, and which sandboxes were made from them */
        get: operations["listImages"];
        put?: never;
        post?: never;
        /** Take a name away, and with the last one the image */
        delete: operations["removeImage"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/images/details": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** An image's config, layers and digests */
        get: operations["inspectImage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/images/pull": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Fetch an image from its registry; as events with the progress of each layer */
        post: operations["pullImage"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/images/archive": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Images as one archive, an OCI layout that `docker load` takes, too */
        get: operations["saveImages"];
        /** Take the images of an archive: of `docker save`, or an OCI layout as tar */
        put: operations["loadImages"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/images/import": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Make an image of a directory on the daemon's machine; needs host-paths, too */
        post: operations["importImage"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/images/tag": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Give an image one more name */
        post: operations["tagImage"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/images/reach": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Whether an image is here or can be fetched now; a registry is asked briefly */
        get: operations["findImage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/images/prune": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Remove what of the images nobody needs any more */
        post: operations["pruneImages"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/images/build": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /** Build an image of a Dockerfile and its context; as events with steps and output */
        put: operations["buildImage"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/backends": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The engines of this machine; `check=1` tries each, which takes seconds */
        get: operations["listBackends"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/doctor": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The machine and the install, tried: makes short-lived sandboxes, takes seconds */
        get: operations["getHealth"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/audit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lines of the log of actions behind a number, or the newest; or as they come */
        get: operations["listAudit"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/system/df": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What sandboxes, volumes, images and records take on the disk */
        get: operations["getDiskUsage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/system/prune": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Remove what nobody needs: unused layers and blobs, and what is asked for besides */
        post: operations["pruneSystem"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/templates": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The templates that are here */
        get: operations["listTemplates"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/templates/{template}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A template: its steps, how its sandboxes begin, what it takes */
        get: operations["getTemplate"];
        /** Build a template of steps and files; as events with steps and output */
        put: operations["buildTemplate"];
        post?: never;
        /** Remove a template; sandboxes of it keep what they need */
        delete: operations["removeTemplate"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/templates/{template}/source": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Build a template of a git repository: its runtime, its files, its dependencies */
        post: operations["buildTemplateFromSource"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agents": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The agents that are known, and which of them are installed */
        get: operations["listAgents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agents/{agent}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** An agent: all that its file says, and its installations */
        get: operations["getAgent"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agents/{agent}/install": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Install an agent, or another version of it; as events with steps and output */
        post: operations["installAgent"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agents/{agent}/kit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** Remove an agent's installations; a session installs it again */
        delete: operations["removeAgentKit"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agent-sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The sessions of agents, the newest first */
        get: operations["listAgentSessions"];
        put?: never;
        /** Start an agent in a sandbox; needs the scope exec, too */
        post: operations["startAgentSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agent-sessions/{session}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A session of an agent */
        get: operations["getAgentSession"];
        put?: never;
        post?: never;
        /** Forget a session, with the sandbox that was made for it */
        delete: operations["removeAgentSession"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agent-sessions/{session}/stop": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** End the agent; its sandbox stays */
        post: operations["stopAgentSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agent-sessions/{session}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What an agent says and does, from any event and live to its end */
        get: operations["streamAgentSessionEvents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agent-sessions/{session}/prompt": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Begin a turn of an acp session; its events tell how it goes */
        post: operations["promptAgentSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agent-sessions/{session}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** End the turn that is under way */
        post: operations["cancelAgentSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agent-sessions/{session}/permission": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Answer what an agent asks leave for */
        post: operations["answerAgentSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agent-sessions/{session}/summary": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What a session ran, reached, was denied, changed and cost */
        get: operations["summarizeAgentSession"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agent-sessions/{session}/diff": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What a session has changed in its project */
        get: operations["diffAgentSession"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agent-sessions/{session}/apply": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Make a session's changes in the project itself; needs the scope host-paths */
        post: operations["applyAgentSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agent-sessions/{session}/recording": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What a session's terminal showed, as an asciicast */
        get: operations["getAgentSessionRecording"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agent-logins": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The caller's own logins with agents, without their tokens */
        get: operations["listAgentLogins"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agents/{agent}/login": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The caller's login with an agent, and what of it enters sandboxes */
        get: operations["getAgentLogin"];
        /** Take over a login from the agent's own file, or an API key */
        put: operations["setAgentLogin"];
        post?: never;
        /** Forget a login; what the provider knows of it stays there */
        delete: operations["removeAgentLogin"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agents/{agent}/login/refresh": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Ask for a new access token now, which sandboxes use at once */
        post: operations["refreshAgentLogin"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agents/{agent}/login/begin": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** A sandbox to run the agent's own login in, on a terminal */
        post: operations["beginAgentLogin"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/agents/{agent}/login/harvest": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Take a login out of the sandbox that was made for it, and remove that */
        post: operations["harvestAgentLogin"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/secrets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The caller's own secrets, without their values */
        get: operations["listSecrets"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/secrets/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /** Set a secret, or give it another value, which sandboxes use at once */
        put: operations["setSecret"];
        post?: never;
        /** Remove a secret; sandboxes that it is bound to can't use it any more */
        delete: operations["removeSecret"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/tokens": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** All tokens, also those that ended */
        get: operations["listTokens"];
        put?: never;
        /** Make a token; its text is in this answer and nowhere else */
        post: operations["createToken"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/tokens/{token}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** End a token, by id or name, and all that it holds open */
        delete: operations["revokeToken"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The daemon's numbers, for Prometheus */
        get: operations["getMetrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/openapi.json": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** This description */
        get: operations["getOpenApi"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/docs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The same as a page to read */
        get: operations["getDocs"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * Accepted
         * @description It was heard, and happens.
         */
        Accepted: Record<string, never>;
        /**
         * Actor
         * @description Who asked. `client` is what the other end calls itself; the rest the kernel vouches for.
         *         `token`: the id of the one that was shown; `address`: where from.
         */
        Actor: {
            door: string;
            /** @default null */
            owner?: string | null;
            /** @default null */
            uid?: number | null;
            /** @default null */
            pid?: number | null;
            /** @default null */
            token?: string | null;
            /** @default null */
            address?: string | null;
            /** @default null */
            client?: string | null;
        };
        /**
         * AgentDetails
         * @description With all that its file says, in its words: docs/reference/agent-definitions.md.
         */
        AgentDetails: {
            name: string;
            title: string;
            home: string;
            version: string;
            pinned: string;
            own: boolean;
            modes: string[];
            tested: boolean;
            kit: components["schemas"]["KitInfo"] | null;
            older: components["schemas"]["KitInfo"][];
            problem: string | null;
            definition: Record<string, never>;
        };
        /**
         * AgentEvent
         * @description One line of a session's log. `seq` counts from 1; `at`: seconds since 1970. `body` of
         *         "agent": the agent's own event (headless), or the `params` of a session/update (acp); of
         *         "output" and "input": {"text": …}; of "permission": {"id", "request"} and later {"id",
         *         "answer"}; of "ended": {"exit_code", "reason"}.
         */
        AgentEvent: {
            seq: number;
            at: number;
            /** @enum {unknown} */
            kind: "agent" | "ended" | "input" | "output" | "permission" | "prompt" | "resize" | "session" | "usage";
            body: Record<string, never>;
        };
        /**
         * AgentInfo
         * @description An agent. `version`: what new sessions get; `pinned`: what its file says, where another one
         *         was chosen. `own`: the file is the user's. `kit`: None if it is not installed in this version;
         *         `older`: other kits of it. `problem`: why its file can't be used. `modes`: how it can be run.
         *         `tested`: it is run in this project's tests.
         */
        AgentInfo: {
            name: string;
            title: string;
            home: string;
            version: string;
            pinned: string;
            own: boolean;
            modes: string[];
            tested: boolean;
            kit: components["schemas"]["KitInfo"] | null;
            older: components["schemas"]["KitInfo"][];
            problem: string | null;
        };
        /** AgentList */
        AgentList: {
            agents: components["schemas"]["AgentInfo"][];
        };
        /** AgentPrompt */
        AgentPrompt: {
            text: string;
        };
        /**
         * AgentRequest
         * @description A session to start.
         *
         *         `spec`: the sandbox, without what the agent itself needs, which is added. `sandbox`: one that is
         *         there already, instead. `task`: what to do; none in interactive mode, and optional with acp.
         *         `resume`: a session of the same agent to go on with (its id), in its sandbox, or if that is gone
         *         in a new one with the state it left. `attended`: leave the agent's own permission questions on.
         *         `login`: bind the user's login with the agent; without one the caller cares for it, such as for
         *         a model without a key. `drive`: in mode acp the daemon speaks with the agent; else whoever is
         *         attached to the job does. `words`: added to the agent's command line. `setup`: commands run
         *         before it, in the network's phase "setup". `trust_project_mcp`: the project's own list of MCP
         *         servers counts.
         *
         *         With acp: `command` is the command line of an agent that has no definition; `agent` is then only
         *         what it is called.
         */
        AgentRequest: {
            agent: string;
            /**
             * @default headless
             * @enum {unknown}
             */
            mode?: "acp" | "headless" | "interactive";
            /** @default [] */
            command?: string[];
            /** @default null */
            task?: string | null;
            /** @default null */
            spec?: components["schemas"]["SandboxSpec"] | null;
            /** @default null */
            sandbox?: string | null;
            /** @default null */
            name?: string | null;
            /** @default null */
            resume?: string | null;
            /** @default null */
            model?: string | null;
            /** @default [] */
            words?: string[];
            /** @default false */
            attended?: boolean;
            /** @default true */
            login?: boolean;
            /** @default true */
            drive?: boolean;
            /** @default {} */
            env?: {
                [key: string]: string;
            };
            /** @default [] */
            mcp?: components["schemas"]["McpServer"][];
            /** @default true */
            sandbox_tools?: boolean;
            /** @default false */
            trust_project_mcp?: boolean;
            /** @default [] */
            setup?: string[][];
            /** @default null */
            workdir?: string | null;
            /** @default null */
            pty?: number[] | null;
            /** @default null */
            timeout_seconds?: number | null;
        };
        /**
         * AgentSession
         * @description A session as shown. `job` runs the agent: attach to it for its terminal or its stdio.
         *         `last_event`: the number of the newest in its log.
         *         `conversation`: the agent's own id of it. `busy`: a prompt of an acp session is being worked on.
         */
        AgentSession: {
            id: string;
            agent: string;
            version: string;
            /** @enum {unknown} */
            mode: "acp" | "headless" | "interactive";
            /** @enum {unknown} */
            state: "ended" | "failed" | "lost" | "running" | "starting";
            sandbox: string;
            sandbox_name: string | null;
            job: string | null;
            task: string | null;
            model: string | null;
            project: string | null;
            conversation: string | null;
            created_at: number;
            ended_at: number | null;
            exit_code: number | null;
            error: string | null;
            busy: boolean;
            last_event: number;
            usage: components["schemas"]["AgentUsage"];
        };
        /**
         * AgentSummary
         * @description What became of a session. `commands`: those that the agent says it ran. `changed`,
         *         `held_back`: paths of the project, and why what is held back is; `complete`: False if a list was
         *         cut. `asked`: what the agent asked its user for, by the sandbox's tools.
         */
        AgentSummary: {
            session: components["schemas"]["AgentSession"];
            commands: string[];
            hosts: components["schemas"]["HostSeen"][];
            denied: components["schemas"]["HostSeen"][];
            changed: string[];
            held_back: {
                [key: string]: string;
            };
            usage: components["schemas"]["AgentUsage"];
            seconds: number;
            complete: boolean;
            asked: components["schemas"]["Wish"][];
        };
        /**
         * AgentUsage
         * @description What an agent says it has used; None: it does not say.
         */
        AgentUsage: {
            cost_usd: number | null;
            input_tokens: number | null;
            output_tokens: number | null;
            turns: number | null;
        };
        /**
         * AppliedFile
         * @description What became of one change. `merged`: with what the host has changed in the same file; `held`:
         *         it needs `allow_risky`; `skipped`: it can't be made.
         */
        AppliedFile: {
            path: string;
            /** @enum {unknown} */
            kind: "added" | "deleted" | "modified";
            /** @enum {unknown} */
            outcome: "applied" | "conflict" | "held" | "merged" | "skipped";
            why: string;
        };
        /**
         * Apply
         * @description `paths`: only these and what is below them, from the workspace's top. `allow_risky`: also
         *         what makes other programs of the user run something. `mark_conflicts`: lines that both sides
         *         have changed are both written, between marks, instead of none. `commit`: a commit with this
         *         message (empty: one of ours) instead of changed files.
         */
        Apply: {
            /** @default [] */
            paths?: string[];
            /** @default false */
            allow_risky?: boolean;
            /** @default false */
            mark_conflicts?: boolean;
            /** @default null */
            commit?: string | null;
        };
        /**
         * AuditEntry
         * @description A line of the log as it stands. `hash` is that of the line before it.
         */
        AuditEntry: {
            seq: number;
            time: number;
            prev: string;
            action: string;
            /** @default null */
            of?: number | null;
            /** @default null */
            actor?: components["schemas"]["Actor"] | null;
            /** @default null */
            sandbox?: string | null;
            /** @default null */
            name?: string | null;
            /** @default {} */
            args?: Record<string, never>;
            /** @default null */
            result?: string | null;
            /** @default null */
            code?: string | null;
            /** @default {} */
            details?: Record<string, never>;
            hash: string;
        };
        /**
         * AuditPage
         * @description The oldest first. `next` is the `after` of the following page; null: this is the end.
         */
        AuditPage: {
            entries: components["schemas"]["AuditEntry"][];
            next: number | null;
        };
        /** BackendList */
        BackendList: {
            backends: components["schemas"]["Engine"][];
        };
        /**
         * Batch
         * @description In the order of the commands.
         */
        Batch: {
            results: components["schemas"]["BatchEntry"][];
        };
        /**
         * BatchCommand
         * @description The same as one of many, whose output is kept till the last of them has ended.
         */
        BatchCommand: {
            /** @default null */
            argv?: string[] | null;
            /** @default null */
            shell?: string | null;
            /** @default null */
            cwd?: string | null;
            /** @default null */
            timeout_seconds?: number | null;
            /** @default {} */
            env?: {
                [key: string]: string;
            };
            /** @default null */
            user?: string | null;
            /** @default null */
            stdin?: string | null;
            /** @default null */
            stdin_b64?: string | null;
            /** @default 262144 */
            output_bytes?: number;
        };
        /**
         * BatchEntry
         * @description One of both: how a command ended, or why it was not run.
         */
        BatchEntry: {
            result?: components["schemas"]["Result"];
            error?: components["schemas"]["Problem"];
        };
        /**
         * Begun
         * @description The command runs.
         */
        Begun: {
            pid: number;
        };
        /**
         * BuildNote
         * @description Something that whoever builds should know: what is ignored, how far a pull is.
         */
        BuildNote: {
            text: string;
        };
        /**
         * BuildOutput
         * @description What a command of step `number` wrote, stdout and stderr as they came.
         */
        BuildOutput: {
            number: number;
            text: string;
        };
        /**
         * BuildStarted
         * @description `steps`: how many there will be.
         */
        BuildStarted: {
            steps: number;
            notes: string[];
        };
        /**
         * BuildStep
         * @description A step begins. `text`: as it is written; `line`: where, 0 if nowhere.
         */
        BuildStep: {
            number: number;
            steps: number;
            text: string;
            line: number;
            stage: string;
        };
        /**
         * BuildStepDone
         * @description `cached`: it was there before. `layer`: the digest of the layer it made, if it made one.
         */
        BuildStepDone: {
            number: number;
            cached: boolean;
            layer: string;
            size: number;
            seconds: number;
        };
        /**
         * Built
         * @description The image. `digest` is that of its manifest, `id` that of its config. `cached`: how many of
         *         its layers were there before, of `layers` that its steps make.
         */
        Built: {
            digest: string;
            id: string;
            names: string[];
            layers: number;
            cached: number;
            seconds: number;
            notes: string[];
        };
        /**
         * Caps
         * @description Bounds of one sandbox's traffic. None: none. Bytes are counted over its whole life, rates in
         *         bytes a second; `names`: how many different names it may ever ask for.
         */
        Caps: {
            /** @default 256 */
            connections?: number;
            /** @default 200 */
            connections_per_second?: number;
            /** @default 8192 */
            names?: number;
            /** @default null */
            upload_bytes?: number | null;
            /** @default null */
            download_bytes?: number | null;
            /** @default null */
            upload_rate?: number | null;
            /** @default null */
            download_rate?: number | null;
        };
        /**
         * CaughtUp
         * @description `follow=0`: all that was there is delivered, and the job goes on. The last one.
         */
        CaughtUp: {
            /** @enum {unknown} */
            event: "caught_up";
            stdout_offset: number;
            stderr_offset: number;
        };
        /**
         * Changed
         * @description A change below what is watched; paths are relative to it, empty for that itself.
         */
        Changed: {
            path?: string;
            path_b64?: string;
            to?: string;
            to_b64?: string;
        };
        /**
         * Command
         * @description A command of a stream or a job.
         */
        Command: {
            /** @default null */
            argv?: string[] | null;
            /** @default null */
            shell?: string | null;
            /** @default null */
            cwd?: string | null;
            /** @default null */
            timeout_seconds?: number | null;
            /** @default {} */
            env?: {
                [key: string]: string;
            };
            /** @default null */
            user?: string | null;
            /** @default false */
            stdin?: boolean;
            /** @default null */
            pty?: [
                number,
                number
            ] | null;
            /** @default null */
            output_bytes?: number | null;
        };
        /**
         * CommandStatus
         * @description How a command ended. `exit_code` is null unless it exited: none is ever invented. `errno` and
         *         `stage` say why it could not be started; `full`: file systems without room when it ended.
         */
        CommandStatus: {
            outcome: components["schemas"]["Outcome"];
            exit_code: number | null;
            signal: number | null;
            errno?: string;
            stage?: string;
            dropped_bytes: number;
            usage: components["schemas"]["Usage"];
            full?: string;
            truncated: boolean;
        };
        /**
         * ConfigOrigin
         * @description Where a spec comes from. Of variables only the names are kept.
         */
        ConfigOrigin: {
            /** @default [] */
            files?: components["schemas"]["ConfigSource"][];
            /** @default {} */
            values?: {
                [key: string]: components["schemas"]["ConfigValue"];
            };
            /** @default {} */
            env?: {
                [key: string]: string;
            };
        };
        /**
         * ConfigSource
         * @description A configuration file as it was when the spec was made from it.
         */
        ConfigSource: {
            /** @enum {unknown} */
            kind: "project" | "user";
            path: string;
            sha256: string;
            trusted: boolean;
        };
        /**
         * ConfigValue
         * @description A resolved value and which of flag, project, user, profile, default it comes from.
         */
        ConfigValue: {
            value: string | number | boolean;
            from: string;
        };
        /**
         * Control
         * @description A control frame of a client: exactly one of these.
         */
        Control: {
            /** @default null */
            signal?: number | null;
            /** @default false */
            kill?: boolean;
            /** @default false */
            eof?: boolean;
            /** @default null */
            rows?: number | null;
            /** @default null */
            columns?: number | null;
        };
        /**
         * Copied
         * @description Files of the archive, by a path or a pattern in it. `owner`: USER[:GROUP].
         */
        Copied: {
            source: string;
            target: string;
            owner: string;
        };
        /**
         * Delivered
         * @description All that was there is delivered, and the job goes on.
         */
        Delivered: {
            stdout_offset: number;
            stderr_offset: number;
        };
        /**
         * DiskPart
         * @description One kind of thing. `complete` false: it is that, and more.
         */
        DiskPart: {
            /** @enum {unknown} */
            kind: "audit" | "blobs" | "builds" | "downloads" | "kits" | "layers" | "logs" | "records" | "sandboxes" | "volumes";
            about: string;
            count: number;
            bytes: number;
            reclaimable_bytes: number;
            complete: boolean;
        };
        /**
         * DiskUsage
         * @description `free_bytes`: of the disk that holds the state. Below `reserve_bytes` nothing new is made.
         */
        DiskUsage: {
            path: string;
            total_bytes: number;
            free_bytes: number;
            reserve_bytes: number;
            short: boolean;
            parts: components["schemas"]["DiskPart"][];
        };
        /**
         * EffectiveLine
         * @description One line of what really holds: `what`, its `value`, and what enforces it.
         *
         *         Of a limit that does not hold, `enforced_by` begins with NOT_ENFORCED and says why.
         */
        EffectiveLine: {
            what: string;
            value: string;
            enforced_by: string;
        };
        /**
         * Ended
         * @description Nothing more comes.
         */
        Ended: Record<string, never>;
        /**
         * Engine
         * @description A backend of this version. `found`: its program is there. `works`: what the last try showed;
         *         null if there was none since the daemon started. `checked_at`: when that was.
         */
        Engine: {
            name: string;
            isolation: string;
            features: components["schemas"]["Features"];
            found: boolean;
            works: boolean | null;
            detail: string;
            hint: string | null;
            checked_at: number | null;
        };
        /**
         * Entry
         * @description A file. `mode` is a number; a name or target that is not UTF-8 is `…_b64`.
         */
        Entry: {
            name?: string;
            name_b64?: string;
            type: components["schemas"]["FileType"];
            size: number;
            mode: number;
            uid: number;
            gid: number;
            mtime_ms: number;
            target?: string;
            target_b64?: string;
        };
        /** EntryList */
        EntryList: {
            entries: components["schemas"]["Entry"][];
        };
        /**
         * Event
         * @description Something that happened. `seq` grows, and is the event's id.
         */
        Event: {
            seq: number;
            at: number;
            kind: string;
            sandbox_id: string | null;
            body: Record<string, never>;
        };
        /**
         * Exec
         * @description A command to its end, with its input and output in the bodies.
         */
        Exec: {
            /** @default null */
            argv?: string[] | null;
            /** @default null */
            shell?: string | null;
            /** @default null */
            cwd?: string | null;
            /** @default null */
            timeout_seconds?: number | null;
            /** @default {} */
            env?: {
                [key: string]: string;
            };
            /** @default null */
            user?: string | null;
            /** @default null */
            stdin?: string | null;
            /** @default null */
            stdin_b64?: string | null;
            /** @default null */
            output_bytes?: number | null;
        };
        /**
         * Exit
         * @description How it ended. The last one.
         */
        Exit: {
            /** @enum {unknown} */
            event: "exit";
            outcome: components["schemas"]["Outcome"];
            exit_code: number | null;
            signal: number | null;
            errno?: string;
            stage?: string;
            dropped_bytes: number;
            usage: components["schemas"]["Usage"];
            full?: string;
            truncated: boolean;
        };
        /**
         * Explanation
         * @description `outcome` is of the request if a method is given, else of the connection. `rules`: all for
         *         this host, in their order, the sandbox's before the floor's. `tls`: whether it is looked into,
         *         and why. `secrets`: variables whose secret is bound there. `address`: of the one that was
         *         given, why it may not be dialled, if so. `change`: commands that would.
         */
        Explanation: {
            host: string;
            port: number;
            phase: string;
            outcome: string;
            words: string;
            rule: number | null;
            source: string;
            by_floor: boolean;
            method: string;
            path: string;
            rules: components["schemas"]["LookedAt"][];
            intercepted: boolean;
            tls: string;
            secrets: string[];
            address: string;
            address_refused: string;
            change: string[];
        };
        /** Extend */
        Extend: {
            ttl_seconds: number;
        };
        /**
         * Failed
         * @description What went wrong. The last one.
         */
        Failed: {
            /** @enum {unknown} */
            event: "error";
            type: string;
            title: string;
            status: number;
            /** @enum {unknown} */
            code: "agent_install_failed" | "build_failed" | "command_failed" | "command_timeout" | "conflict" | "daemon_timeout" | "daemon_unavailable" | "disk_full" | "file_error" | "file_exists" | "file_not_found" | "file_permission" | "file_special" | "file_too_large" | "guest_protocol" | "guest_timeout" | "host_forbids" | "image_build_failed" | "image_invalid" | "internal" | "invalid_input" | "is_a_directory" | "launch_failed" | "login_ended" | "login_failed" | "network_unavailable" | "not_a_directory" | "not_found" | "not_ready" | "policy_denied" | "port_failed" | "rate_limited" | "registry_denied" | "registry_failed" | "resource_exhausted" | "sandbox_unavailable" | "state_corrupt" | "state_locked" | "state_too_new" | "state_unavailable" | "unauthenticated" | "unenforceable" | "unsupported";
            detail: string;
            retryable: boolean;
            hint?: string;
            details?: Record<string, never>;
        };
        /**
         * Features
         * @description What an engine can do at all; what it can do on this machine a try tells. What is missing
         *         here is refused with UnsupportedError, an explicit limit that is none of `limits` with
         *         UnenforceableError. `pid1_guarded`: a guest can't end its own sandbox by a signal to PID 1.
         */
        Features: {
            pty: boolean;
            kept: boolean;
            pause: boolean;
            memory_snapshot: boolean;
            network: string;
            pid1_guarded: boolean;
            limits: string[];
        };
        /**
         * FileChange
         * @description `path` in text, with marks for what is none (`path_b64` then has the bytes). `host_changed`:
         *         the host has changed it, too, since the sandbox was made. Modes are octal. `added_lines` and
         *         `removed_lines`: null for what is no text, and for what was not looked into. `held_back`: why
         *         it is not applied unless risky ones are allowed; null: it is. `note`: why to look twice.
         */
        FileChange: {
            path: string;
            /** @enum {unknown} */
            kind: "added" | "deleted" | "modified" | "renamed";
            /** @enum {unknown} */
            type: "directory" | "file" | "special" | "symlink";
            old_path: string | null;
            path_b64: string | null;
            old_mode: string | null;
            new_mode: string | null;
            binary: boolean;
            added_lines: number | null;
            removed_lines: number | null;
            host_changed: boolean;
            held_back: string | null;
            note: string | null;
            problem: string | null;
        };
        /**
         * FileType
         * @enum {unknown}
         */
        FileType: "block" | "char" | "dir" | "fifo" | "file" | "link" | "socket";
        /**
         * Finding
         * @description One line. `fail`: something that is needed does not work. `hint`: what mends it.
         */
        Finding: {
            what: string;
            /** @enum {unknown} */
            state: "fail" | "ok" | "warn";
            detail: string;
            hint: string | null;
        };
        /**
         * Gap
         * @description Events were lost: look at the state anew. `oldest` is the first that may still be there.
         */
        Gap: {
            oldest: number;
            newest: number;
        };
        /**
         * GivenLogin
         * @description One of them: `file`, the text of the file that the agent itself keeps its login in; or `key`,
         *         an API key, kept as the secret `name` (the agent's first, unless given).
         */
        GivenLogin: {
            /** @default null */
            file?: string | null;
            /** @default null */
            key?: string | null;
            /** @default null */
            name?: string | null;
        };
        /**
         * Health
         * @description `fit`: everything that is needed works.
         */
        Health: {
            version: string;
            fit: boolean;
            findings: components["schemas"]["Finding"][];
        };
        /** HostSeen */
        HostSeen: {
            host: string;
            port: number;
            times: number;
        };
        /**
         * ImageDetail
         * @description `index`: the digest of the list of several machines' images that it was chosen from.
         *         `disk_bytes`: what its own files take, of which other images may share some; without what is
         *         unpacked of it.
         */
        ImageDetail: {
            names: string[];
            digest: string;
            id: string;
            size: number;
            created: string;
            platform: string;
            sandboxes: string[];
            index: string | null;
            author: string;
            config: components["schemas"]["ImageProcess"];
            layers: components["schemas"]["ImageLayer"][];
            history: components["schemas"]["ImageStep"][];
            disk_bytes: number;
        };
        /**
         * ImageInfo
         * @description An image that is here. `digest` is that of its manifest, `id` that of its config, as docker
         *         counts; `size` what its layers take as they are kept, compressed; `created` as its maker wrote
         *         it. `sandboxes`: the names (or ids) of those that were made from it.
         */
        ImageInfo: {
            names: string[];
            digest: string;
            id: string;
            size: number;
            created: string;
            platform: string;
            sandboxes: string[];
        };
        /**
         * ImageLayer
         * @description `digest` and `size` are those of the file as it came, `diff_id` is the digest of its tar.
         *         `unpacked`: its files are ready for sandboxes.
         */
        ImageLayer: {
            digest: string;
            diff_id: string;
            size: number;
            media_type: string;
            unpacked: boolean;
        };
        /** ImageList */
        ImageList: {
            images: components["schemas"]["ImageInfo"][];
        };
        /**
         * ImageProcess
         * @description What a process of the image starts from; HEALTHCHECK and the like are not obeyed.
         */
        ImageProcess: {
            user: string;
            env: string[];
            entrypoint: string[];
            cmd: string[];
            working_dir: string;
            exposed_ports: string[];
            volumes: string[];
            labels: {
                [key: string]: string;
            };
            stop_signal: string;
            shell: string[];
        };
        /**
         * ImageRemoved
         * @description `untagged`: names that are gone. `deleted`: digests of images whose content is, too.
         */
        ImageRemoved: {
            untagged: string[];
            deleted: string[];
            freed_bytes: number;
        };
        /**
         * ImageStep
         * @description A line of an image's history, as its maker wrote it.
         */
        ImageStep: {
            created: string;
            created_by: string;
            comment: string;
            empty_layer: boolean;
        };
        /**
         * ImagesPruned
         * @description `blobs` and `layers`: how many files of images and how many unpacked layers went.
         */
        ImagesPruned: {
            untagged: string[];
            blobs: number;
            layers: number;
            freed_bytes: number;
        };
        /**
         * ImportImage
         * @description `directory`: a root file system on the daemon's machine. The rest is what processes of the
         *         image start from.
         */
        ImportImage: {
            directory: string;
            name: string;
            /** @default  */
            user?: string;
            /** @default [] */
            env?: string[];
            /** @default [] */
            entrypoint?: string[];
            /** @default [] */
            cmd?: string[];
            /** @default  */
            working_dir?: string;
            /** @default {} */
            labels?: {
                [key: string]: string;
            };
        };
        /**
         * InstallRequest
         * @description `update`: what is pinned now, also where another version was chosen, and older kits that
         *         nobody has go. `version`: with `update`, this one from now on, until the next update. `host_env`
         *         is what of the user's environment says which toolchains there are.
         */
        InstallRequest: {
            /** @default false */
            update?: boolean;
            /** @default null */
            version?: string | null;
            /** @default {} */
            host_env?: {
                [key: string]: string;
            };
        };
        /**
         * Job
         * @description `status` is there once it ended; of a lost one nobody knows it.
         */
        Job: {
            id: string;
            sandbox_id: string;
            argv: string[];
            cwd: string | null;
            user: string | null;
            stdin: boolean;
            pty: [
                number,
                number
            ] | null;
            timeout_seconds: number | null;
            output_bytes: number | null;
            /** @enum {unknown} */
            state: "ended" | "lost" | "running";
            status: components["schemas"]["CommandStatus"] | null;
            created_at: number;
            ended_at: number | null;
        };
        /** JobList */
        JobList: {
            jobs: components["schemas"]["Job"][];
        };
        /**
         * JobPage
         * @description `next` is the `after` of the following page; null: there is none.
         */
        JobPage: {
            jobs: components["schemas"]["Job"][];
            next: number | null;
        };
        /**
         * KitInfo
         * @description A kit as shown. `current`: what new sessions get. `sandboxes`: how many have it, running or
         *         not; as long as there are any it stays. `used_bytes`: if that was asked for.
         */
        KitInfo: {
            id: string;
            agent: string;
            version: string;
            definition: string;
            installed_at: number;
            locks: components["schemas"]["KitLock"][];
            current: boolean;
            sandboxes: number;
            used_bytes: number | null;
        };
        /**
         * KitLock
         * @description What says which packages are in a kit, by its hash: a lock file at `path` below the kit, or
         *         `files` of a kind, whose hashes were hashed in the order of their names.
         */
        KitLock: {
            path: string;
            sha256: string;
            files: number;
        };
        /**
         * LayerProgress
         * @description How far a layer is: `done` of `total` bytes, as they are compressed.
         */
        LayerProgress: {
            layer: string;
            /** @enum {unknown} */
            state: "elsewhere" | "fetched" | "fetching" | "present" | "ready" | "unpacking" | "waiting";
            done: number;
            total: number;
        };
        /**
         * Limits
         * @description Default limits. None means that the profile sets none, not that the kernel has none.
         */
        Limits: {
            memory_bytes: number | null;
            cpus: number | null;
            pids: number;
            disk_bytes: number | null;
            nofile: number | null;
            output_bytes: number;
            exec_timeout: number | null;
            tmp_bytes: number;
            shm_bytes: number;
            run_bytes: number;
            tmpfs_inodes: number;
        };
        /**
         * LoginBegin
         * @description `host_env`: as in a sandbox's.
         */
        LoginBegin: {
            /** @default {} */
            host_env?: {
                [key: string]: string;
            };
        };
        /**
         * LoginBox
         * @description A sandbox for one login. `command` is to be run in it, on a terminal; `warning` is to be said
         *         first, and `hint` if there is one: what to do there.
         */
        LoginBox: {
            sandbox: string;
            command: string[];
            env: {
                [key: string]: string;
            };
            warning: string;
            hint: string;
        };
        /**
         * LoginHarvest
         * @description `sandbox`: the one that was made for this login.
         */
        LoginHarvest: {
            sandbox: string;
        };
        /** LoginList */
        LoginList: {
            logins: components["schemas"]["LoginStatus"][];
        };
        /**
         * LoginStatus
         * @description A login as shown. `kind`: "key": API keys, which are the secrets `secrets`; "oauth": a
         *         subscription. `state`: "failing": the last request for a new token came to nothing, and is
         *         repeated; "ended": log in again; `problem` says why. `enters`: what of it is inside a sandbox.
         *         `keys`: secrets that the agent takes as API keys. `file`: where the agent itself keeps its
         *         login. `can_log_in`: whether its own login can be run in a sandbox.
         */
        LoginStatus: {
            agent: string;
            /** @enum {unknown} */
            kind: "key" | "none" | "oauth";
            /** @enum {unknown} */
            state: "ended" | "failing" | "none" | "ok";
            account: string;
            secrets: string[];
            created_at: number | null;
            expires_at: number | null;
            refreshed_at: number | null;
            refreshable: boolean;
            problem: string;
            enters: string;
            keys: string[];
            file: string;
            can_log_in: boolean;
            about: string;
            sandboxes: string[];
        };
        /**
         * LookedAt
         * @description A rule for this host. `port`: it is for this port, too; if not, it was passed over.
         */
        LookedAt: {
            number: number;
            text: string;
            source: string;
            by_floor: boolean;
            port: boolean;
            decided: boolean;
        };
        /**
         * MadeToken
         * @description `token`: what to show, told this once.
         */
        MadeToken: {
            id: string;
            name: string;
            owner: string;
            scopes: string[];
            created_at: number;
            expires_at: number | null;
            last_used_at: number | null;
            revoked_at: number | null;
            token: string;
        };
        /** MakeDirectory */
        MakeDirectory: {
            path: string;
            /** @default null */
            mode?: string | null;
            /** @default false */
            parents?: boolean;
            /** @default null */
            user?: string | null;
        };
        /**
         * McpServer
         * @description An MCP server that an agent is to have: a `command`, which runs inside, or the `url` of one
         *         that runs elsewhere. One on this machine's loopback is reached through the gateway by name.
         *         ${NAME} in `env` and `headers` is a secret, of which a placeholder enters. `allow`: hosts that
         *         it needs besides, as in NetworkRequest; `secrets`: secrets that it uses, as in SandboxSpec.
         */
        McpServer: {
            name: string;
            /** @default [] */
            command?: string[];
            /** @default {} */
            env?: {
                [key: string]: string;
            };
            /** @default  */
            url?: string;
            /** @default {} */
            headers?: {
                [key: string]: string;
            };
            /** @default [] */
            allow?: string[];
            /** @default [] */
            secrets?: string[];
        };
        /** Move */
        Move: {
            path: string;
            to: string;
            /** @default false */
            replace?: boolean;
            /** @default null */
            user?: string | null;
        };
        /**
         * NetworkRequest
         * @description A sandbox's network. `phases` by name; what stands beside them is phase "default". `phase`:
         *         the one it begins with. `caps` hold in all of them.
         */
        NetworkRequest: {
            /** @default null */
            presets?: string[] | null;
            /** @default [] */
            allow?: string[];
            /** @default [] */
            deny?: string[];
            /** @default [] */
            rules?: components["schemas"]["Rule"][];
            /** @default {} */
            phases?: {
                [key: string]: components["schemas"]["PhaseRequest"];
            };
            /** @default null */
            phase?: string | null;
            /** @default null */
            caps?: components["schemas"]["Caps"] | null;
        };
        /**
         * NetworkState
         * @description What a sandbox may reach and what it did. `gateway`: "running"; "waiting": it is started by
         *         the first connection; "none": there is no way out. `notes`: what of this machine's registries
         *         could not be used.
         */
        NetworkState: {
            phase: string;
            phases: {
                [key: string]: components["schemas"]["Policy"];
            };
            floor: components["schemas"]["Policy"] | null;
            secrets: Record<string, never>[];
            /** @enum {unknown} */
            gateway: "none" | "running" | "waiting";
            notes: string[];
            traffic: components["schemas"]["Traffic"] | null;
        };
        /**
         * NewPort
         * @description `port`: [[ADDRESS:]HOST_PORT:]PORT, or preview:PORT for a preview alone. `public`: its
         *         preview asks for no token.
         */
        NewPort: {
            port: string;
            /** @default false */
            public?: boolean;
        };
        /**
         * NewSandbox
         * @description It stays until somebody removes it, so it keeps its files unless told not to.
         */
        NewSandbox: {
            /** @default native */
            backend?: string;
            /** @default host */
            image?: string;
            /** @default moderate */
            profile?: string;
            /** @default null */
            user?: string | null;
            /** @default true */
            toolchains?: boolean;
            /** @default false */
            nested_userns?: boolean;
            /** @default null */
            memory_bytes?: number | null;
            /** @default null */
            cpus?: number | null;
            /** @default null */
            pids?: number | null;
            /** @default null */
            disk_bytes?: number | null;
            /** @default false */
            unlimited_disk?: boolean;
            /** @default null */
            nofile?: number | null;
            /** @default false */
            best_effort?: boolean;
            /** @default false */
            ephemeral?: boolean;
            /** @default {} */
            env?: {
                [key: string]: string;
            };
            /** @default null */
            command_timeout_seconds?: number | null;
            /** @default null */
            command_output_bytes?: number | null;
            /** @default null */
            config?: components["schemas"]["ConfigOrigin"] | null;
            /** @default {} */
            host_env?: {
                [key: string]: string;
            };
            /** @default null */
            network?: components["schemas"]["NetworkRequest"] | null;
            /** @default [] */
            secrets?: string[];
            /** @default [] */
            ports?: string[];
            /** @default null */
            workspace?: string | null;
            /** @default false */
            workspace_secrets?: boolean;
            /** @default [] */
            volumes?: string[];
            /**
             * @default show
             * @enum {unknown}
             */
            workspace_ignored?: "hide" | "show";
            /** @default null */
            workspace_branch?: string | null;
            /**
             * @default missing
             * @enum {unknown}
             */
            pull?: "always" | "missing" | "never";
            /** @default null */
            entrypoint?: string[] | null;
            /** @default null */
            template?: string | null;
            /** @default [] */
            agents?: string[];
            /** @default true */
            agent_logins?: boolean;
            /** @default null */
            workspace_path?: string | null;
            /** @default null */
            name?: string | null;
            /** @default {} */
            labels?: {
                [key: string]: string;
            };
            /** @default null */
            ttl_seconds?: number | null;
            /** @default null */
            idle_seconds?: number | null;
            /** @default null */
            on_ttl?: ("remove" | "stop") | null;
            /** @default null */
            on_idle?: ("remove" | "stop") | null;
        };
        /**
         * NewToken
         * @description `owner`: whose sandboxes there are for it; one of its own unless given.
         */
        NewToken: {
            name: string;
            /** @default null */
            owner?: string | null;
            /**
             * @default [
             *       "read",
             *       "exec",
             *       "manage"
             *     ]
             */
            scopes?: ("admin" | "exec" | "host-paths" | "manage" | "read")[];
            /** @default null */
            expires_seconds?: number | null;
        };
        /**
         * NewVolume
         * @description `quota_bytes`: the size of a disk of its own; refused where it can't be enforced.
         *         `exclusive`: at most one sandbox at a time runs with it.
         */
        NewVolume: {
            name: string;
            /** @default null */
            quota_bytes?: number | null;
            /** @default false */
            exclusive?: boolean;
        };
        /**
         * Notice
         * @description `run` only: a default of the profile that does not hold on this machine.
         */
        Notice: {
            /** @enum {unknown} */
            event: "notice";
            text: string;
        };
        /**
         * Offset
         * @description The output that follows does not follow what came before (jobs).
         */
        Offset: {
            /** @enum {unknown} */
            event: "offset";
            /** @enum {unknown} */
            channel: 1 | 2;
            offset: number;
        };
        /**
         * Outcome
         * @description How a command ended. Only `exited` has an exit code; none is ever invented.
         * @enum {unknown}
         */
        Outcome: "exited" | "lost" | "not_started" | "oom" | "signaled" | "timeout";
        /**
         * Output
         * @description What it wrote: `text`, or `data_b64` where that is not UTF-8. `offset` is the number of bytes
         *         of this stream before it; what was lost between two shows there.
         */
        Output: {
            offset: number;
            text?: string;
            data_b64?: string;
        };
        /**
         * PermissionAnswer
         * @description `id`: the question's, from its event. `option`: one of its options; null: cancelled.
         */
        PermissionAnswer: {
            id: string;
            /** @default null */
            option?: string | null;
        };
        /** PhaseChoice */
        PhaseChoice: {
            phase: string;
        };
        /**
         * PhaseRequest
         * @description One phase. `deny` and `allow` are targets: HOST[:PORT], HOST:*, CIDR[:PORT]; in the policy
         *         they stand in the order deny, rules, allow, presets. "none" is the preset that stands alone.
         *         `presets` None: those of the profile in phase "default", none in others; an empty list: none.
         */
        PhaseRequest: {
            /** @default null */
            presets?: string[] | null;
            /** @default [] */
            allow?: string[];
            /** @default [] */
            deny?: string[];
            /** @default [] */
            rules?: components["schemas"]["Rule"][];
        };
        /**
         * Policy
         * @description Ordered rules, and bounds.
         */
        Policy: {
            rules: components["schemas"]["Rule"][];
            caps: components["schemas"]["Caps"];
        };
        /**
         * Port
         * @description A published port. `address` and `host_port`: where it is on the daemon's machine; null: as a
         *         preview alone. `preview_url` is there while the daemon listens on a network, with the token for
         *         those who may run commands. `error` says why it is not open.
         */
        Port: {
            port: number;
            address: string | null;
            host_port: number | null;
            public: boolean;
            open: boolean;
            error: string | null;
            preview_host: string;
            preview_path: string;
            preview_url: string | null;
            token?: string;
        };
        /** PortList */
        PortList: {
            ports: components["schemas"]["Port"][];
        };
        /**
         * Probe
         * @description Nothing to choose yet.
         */
        Probe: Record<string, never>;
        /**
         * ProbeFinding
         * @description One try. `opens`: what a guest can do if it is open. `expected`: it is closed, or open for
         *         `reason`. `answers`: what came of it, by user. `detail`: what was seen, if it is open.
         */
        ProbeFinding: {
            name: string;
            group: string;
            opens: string;
            /** @enum {unknown} */
            state: "closed" | "open" | "unknown";
            expected: boolean;
            reason: string | null;
            detail: string;
            answers: {
                [key: string]: string;
            };
        };
        /**
         * ProbeResult
         * @description `fit`: nothing is open that should be closed. `users`: as whom it was tried. `notes`: what
         *         was not tried, and why.
         */
        ProbeResult: {
            fit: boolean;
            users: string[];
            findings: components["schemas"]["ProbeFinding"][];
            notes: string[];
        };
        /**
         * Problem
         * @description What went wrong (RFC 9457). `code` is one of a closed list, `hint` says what to do about it,
         *         and with `retryable` the same call may succeed later.
         */
        Problem: {
            type: string;
            title: string;
            status: number;
            /** @enum {unknown} */
            code: "agent_install_failed" | "build_failed" | "command_failed" | "command_timeout" | "conflict" | "daemon_timeout" | "daemon_unavailable" | "disk_full" | "file_error" | "file_exists" | "file_not_found" | "file_permission" | "file_special" | "file_too_large" | "guest_protocol" | "guest_timeout" | "host_forbids" | "image_build_failed" | "image_invalid" | "internal" | "invalid_input" | "is_a_directory" | "launch_failed" | "login_ended" | "login_failed" | "network_unavailable" | "not_a_directory" | "not_found" | "not_ready" | "policy_denied" | "port_failed" | "rate_limited" | "registry_denied" | "registry_failed" | "resource_exhausted" | "sandbox_unavailable" | "state_corrupt" | "state_locked" | "state_too_new" | "state_unavailable" | "unauthenticated" | "unenforceable" | "unsupported";
            detail: string;
            retryable: boolean;
            hint?: string;
            details?: Record<string, never>;
        };
        /**
         * Progress
         * @description `run` only: what is being made before the command can start, such as an image.
         */
        Progress: {
            /** @enum {unknown} */
            event: "progress";
            text: string;
        };
        /**
         * Prune
         * @description What goes besides what nobody would miss. `sandboxes`: the caller's own that are stopped.
         *         `volumes`: the caller's own that no sandbox has. `dry_run`: nothing goes, it is told only.
         */
        Prune: {
            /** @default false */
            sandboxes?: boolean;
            /** @default false */
            volumes?: boolean;
            /** @default false */
            dry_run?: boolean;
        };
        /**
         * PruneImages
         * @description `all`: also images with a name that no sandbox was made from.
         */
        PruneImages: {
            /** @default false */
            all?: boolean;
        };
        /**
         * Pruned
         * @description What went, or would; `bytes` is the sum of what did not fail.
         */
        Pruned: {
            dry_run: boolean;
            items: components["schemas"]["PrunedItem"][];
            bytes: number;
        };
        /**
         * PrunedItem
         * @description `problem`: why it is still there.
         */
        PrunedItem: {
            /** @enum {unknown} */
            kind: "audit" | "blobs" | "builds" | "downloads" | "kits" | "layers" | "logs" | "records" | "sandboxes" | "volumes";
            id: string;
            name: string | null;
            bytes: number;
            problem: string | null;
        };
        /**
         * Published
         * @description `run` only: where a port of the sandbox is on the daemon's machine.
         */
        Published: {
            /** @enum {unknown} */
            event: "published";
            port: number;
            address: string;
            host_port: number;
        };
        /**
         * PublishedAt
         * @description Where a port of the sandbox is on the daemon's machine.
         */
        PublishedAt: {
            port: number;
            address: string;
            host_port: number;
        };
        /**
         * PullImage
         * @description `platform`: OS/ARCHITECTURE, if not this machine's.
         */
        PullImage: {
            reference: string;
            /** @default null */
            platform?: string | null;
        };
        /**
         * Reach
         * @description `in_reach`: it is here, or a registry that answers has it.
         */
        Reach: {
            in_reach: boolean;
        };
        /**
         * ReadyCheck
         * @description When a sandbox may be used: once a shell command ends with 0, a port takes connections, or
         *         the start command has written `log`. One of them.
         */
        ReadyCheck: {
            /** @default null */
            command?: string | null;
            /** @default null */
            port?: number | null;
            /** @default null */
            log?: string | null;
            /** @default 60 */
            seconds?: number;
        };
        /**
         * Result
         * @description The same with what it wrote: text, or `…_b64` if that is not UTF-8.
         */
        Result: {
            outcome: components["schemas"]["Outcome"];
            exit_code: number | null;
            signal: number | null;
            errno?: string;
            stage?: string;
            dropped_bytes: number;
            usage: components["schemas"]["Usage"];
            full?: string;
            truncated: boolean;
            stdout?: string;
            stdout_b64?: string;
            stderr?: string;
            stderr_b64?: string;
        };
        /**
         * Rule
         * @description One line of a policy.
         *
         *         `host`: an exact name ("api.example.org"), all names below one ("*.example.org"), every name
         *         ("*"), an address or a range of addresses in CIDR notation. A range matches what the guest asks
         *         for by address; what a name resolves to is vetted apart. Empty `ports`, `methods` and `paths`
         *         match everything; a path that ends in "*" matches what begins so. Methods and paths need the
         *         request to be seen: such a host's TLS is intercepted.
         *         `private`: may be an address that is not public. The machine's loopback needs ports besides.
         *         `tls`: "splice" never intercepts, so that pinned clients work; it can't stand with methods,
         *         paths or a secret's host.
         *         `source`: where the rule comes from, in words for people.
         */
        Rule: {
            /**
             * @default allow
             * @enum {unknown}
             */
            action?: "allow" | "deny";
            host: string;
            /** @default [] */
            ports?: number[];
            /** @default [] */
            methods?: string[];
            /** @default [] */
            paths?: string[];
            /** @default false */
            private?: boolean;
            /**
             * @default auto
             * @enum {unknown}
             */
            tls?: "auto" | "splice";
            /** @default  */
            source?: string;
        };
        /**
         * RuleChange
         * @description A rule to stand before all others of a phase, in words (`target`) or in full.
         */
        RuleChange: {
            /**
             * @default allow
             * @enum {unknown}
             */
            action?: "allow" | "deny";
            /** @default null */
            target?: string | null;
            /** @default null */
            rule?: components["schemas"]["Rule"] | null;
            /** @default null */
            phase?: string | null;
        };
        /**
         * Run
         * @description A sandbox for one command: `env` and `user` are the sandbox's, and so the command's.
         */
        Run: {
            /** @default native */
            backend?: string;
            /** @default host */
            image?: string;
            /** @default moderate */
            profile?: string;
            /** @default null */
            user?: string | null;
            /** @default true */
            toolchains?: boolean;
            /** @default false */
            nested_userns?: boolean;
            /** @default null */
            memory_bytes?: number | null;
            /** @default null */
            cpus?: number | null;
            /** @default null */
            pids?: number | null;
            /** @default null */
            disk_bytes?: number | null;
            /** @default false */
            unlimited_disk?: boolean;
            /** @default null */
            nofile?: number | null;
            /** @default false */
            best_effort?: boolean;
            /** @default true */
            ephemeral?: boolean;
            /** @default {} */
            env?: {
                [key: string]: string;
            };
            /** @default null */
            command_timeout_seconds?: number | null;
            /** @default null */
            command_output_bytes?: number | null;
            /** @default null */
            config?: components["schemas"]["ConfigOrigin"] | null;
            /** @default {} */
            host_env?: {
                [key: string]: string;
            };
            /** @default null */
            network?: components["schemas"]["NetworkRequest"] | null;
            /** @default [] */
            secrets?: string[];
            /** @default [] */
            ports?: string[];
            /** @default null */
            workspace?: string | null;
            /** @default false */
            workspace_secrets?: boolean;
            /** @default [] */
            volumes?: string[];
            /**
             * @default show
             * @enum {unknown}
             */
            workspace_ignored?: "hide" | "show";
            /** @default null */
            workspace_branch?: string | null;
            /**
             * @default missing
             * @enum {unknown}
             */
            pull?: "always" | "missing" | "never";
            /** @default null */
            entrypoint?: string[] | null;
            /** @default null */
            template?: string | null;
            /** @default [] */
            agents?: string[];
            /** @default true */
            agent_logins?: boolean;
            /** @default null */
            workspace_path?: string | null;
            /** @default null */
            argv?: string[] | null;
            /** @default null */
            shell?: string | null;
            /** @default null */
            cwd?: string | null;
            /** @default null */
            timeout_seconds?: number | null;
            /** @default null */
            stdin?: string | null;
            /** @default null */
            stdin_b64?: string | null;
            /** @default null */
            output_bytes?: number | null;
            /** @default null */
            ttl_seconds?: number | null;
        };
        /**
         * RunBatch
         * @description Commands that each get a sandbox of their own of the same spec, `parallel` at a time.
         */
        RunBatch: {
            /**
             * @default {
             *       "backend": "native",
             *       "image": "host",
             *       "profile": "moderate",
             *       "user": null,
             *       "toolchains": true,
             *       "nested_userns": false,
             *       "memory_bytes": null,
             *       "cpus": null,
             *       "pids": null,
             *       "disk_bytes": null,
             *       "unlimited_disk": false,
             *       "nofile": null,
             *       "best_effort": false,
             *       "ephemeral": true,
             *       "env": {},
             *       "command_timeout_seconds": null,
             *       "command_output_bytes": null,
             *       "config": null,
             *       "host_env": {},
             *       "network": null,
             *       "secrets": [],
             *       "ports": [],
             *       "workspace": null,
             *       "workspace_secrets": false,
             *       "volumes": [],
             *       "workspace_ignored": "show",
             *       "workspace_branch": null,
             *       "pull": "missing",
             *       "entrypoint": null,
             *       "template": null,
             *       "agents": [],
             *       "agent_logins": true,
             *       "workspace_path": null
             *     }
             */
            spec?: components["schemas"]["SandboxSpec"];
            commands: components["schemas"]["BatchCommand"][];
            /** @default 4 */
            parallel?: number;
            /** @default null */
            ttl_seconds?: number | null;
        };
        /** RunStream */
        RunStream: {
            /**
             * @default {
             *       "backend": "native",
             *       "image": "host",
             *       "profile": "moderate",
             *       "user": null,
             *       "toolchains": true,
             *       "nested_userns": false,
             *       "memory_bytes": null,
             *       "cpus": null,
             *       "pids": null,
             *       "disk_bytes": null,
             *       "unlimited_disk": false,
             *       "nofile": null,
             *       "best_effort": false,
             *       "ephemeral": true,
             *       "env": {},
             *       "command_timeout_seconds": null,
             *       "command_output_bytes": null,
             *       "config": null,
             *       "host_env": {},
             *       "network": null,
             *       "secrets": [],
             *       "ports": [],
             *       "workspace": null,
             *       "workspace_secrets": false,
             *       "volumes": [],
             *       "workspace_ignored": "show",
             *       "workspace_branch": null,
             *       "pull": "missing",
             *       "entrypoint": null,
             *       "template": null,
             *       "agents": [],
             *       "agent_logins": true,
             *       "workspace_path": null
             *     }
             */
            spec?: components["schemas"]["SandboxSpec"];
            command: components["schemas"]["Command"];
            /** @default null */
            ttl_seconds?: number | null;
        };
        /**
         * Sandbox
         * @description A sandbox as shown. Not its environment: that is where secrets are.
         */
        Sandbox: {
            id: string;
            name: string | null;
            owner: string;
            /** @enum {unknown} */
            state: "creating" | "error" | "removing" | "running" | "stopped";
            backend: string;
            image: string | null;
            profile: string | null;
            user: string | null;
            limits: components["schemas"]["Limits"] | null;
            ephemeral: boolean;
            labels: {
                [key: string]: string;
            };
            created_at: number;
            updated_at: number;
            started_at: number | null;
            expires_at: number | null;
            ttl_seconds: number | null;
            idle_seconds: number | null;
            /** @enum {unknown} */
            on_ttl: "remove" | "stop";
            /** @enum {unknown} */
            on_idle: "remove" | "stop";
            error: string | null;
            config: components["schemas"]["ConfigOrigin"] | null;
            notices: string[];
        };
        /**
         * SandboxDetail
         * @description With what holds in it and what it has used: now, or in its last run.
         */
        SandboxDetail: {
            id: string;
            name: string | null;
            owner: string;
            /** @enum {unknown} */
            state: "creating" | "error" | "removing" | "running" | "stopped";
            backend: string;
            image: string | null;
            profile: string | null;
            user: string | null;
            limits: components["schemas"]["Limits"] | null;
            ephemeral: boolean;
            labels: {
                [key: string]: string;
            };
            created_at: number;
            updated_at: number;
            started_at: number | null;
            expires_at: number | null;
            ttl_seconds: number | null;
            idle_seconds: number | null;
            /** @enum {unknown} */
            on_ttl: "remove" | "stop";
            /** @enum {unknown} */
            on_idle: "remove" | "stop";
            error: string | null;
            config: components["schemas"]["ConfigOrigin"] | null;
            notices: string[];
            effective: components["schemas"]["EffectiveLine"][];
            usage: components["schemas"]["SandboxUsage"] | null;
        };
        /**
         * SandboxPage
         * @description `next` is the `after` of the following page; null: there is none.
         */
        SandboxPage: {
            sandboxes: components["schemas"]["Sandbox"][];
            next: number | null;
        };
        /**
         * SandboxSpec
         * @description What a sandbox is to be. None: as the profile says.
         *
         *         `ephemeral`: its files are in memory where the kernel can do that, and it is removed when it
         *         ends; any other keeps its files on disk over stop and start. `best_effort`: a limit that this
         *         machine can't enforce is shown as not enforced instead of failing the create. `command_…` is for
         *         commands whose caller says nothing else. `config`: which files this was read from; kept and
         *         shown, not obeyed. `host_env` is what of the user's environment says which toolchains the `host`
         *         image shows; without it, this process's own. `network`: what it may reach. `secrets`:
         *         NAME@HOST[,HOST], which it may use and not know. `ports`: [[ADDRESS:]PORT:]PORT, published on
         *         this machine. `workspace`: DIR[:cow|ro|rw], a directory of this machine at /workspace; files in
         *         it that look like secrets are left out unless `workspace_secrets`, and those that git ignores if
         *         `workspace_ignored` is hide. `workspace_branch`: of the git repository there, this branch, where
         *         it is checked out or else in a checkout of the sandbox's own. `workspace_path`: where it is
         *         inside instead of /workspace: "same", as on the host, or an absolute path. `volumes`:
         *         NAME:/path[:ro], volumes of the sandbox's owner; one that is not there yet is made. `image`:
         *         `host`, a directory, or a reference (NAME[:TAG], NAME@DIGEST), which is fetched if it is not
         *         here, or as `pull` says.
         *         `user`: NAME, UID, NAME:GROUP or UID:GID; None: the image's own, or root. `entrypoint`: in place
         *         of the image's, for the command of a `run`. `template`: its name, in place of an image's.
         *         `agents`: names of agents that can run in it: it has their kits, reaches what they need, and can
         *         use the owner's logins with them, unless `agent_logins` is off.
         */
        SandboxSpec: {
            /** @default native */
            backend?: string;
            /** @default host */
            image?: string;
            /** @default moderate */
            profile?: string;
            /** @default null */
            user?: string | null;
            /** @default true */
            toolchains?: boolean;
            /** @default false */
            nested_userns?: boolean;
            /** @default null */
            memory_bytes?: number | null;
            /** @default null */
            cpus?: number | null;
            /** @default null */
            pids?: number | null;
            /** @default null */
            disk_bytes?: number | null;
            /** @default false */
            unlimited_disk?: boolean;
            /** @default null */
            nofile?: number | null;
            /** @default false */
            best_effort?: boolean;
            /** @default true */
            ephemeral?: boolean;
            /** @default {} */
            env?: {
                [key: string]: string;
            };
            /** @default null */
            command_timeout_seconds?: number | null;
            /** @default null */
            command_output_bytes?: number | null;
            /** @default null */
            config?: components["schemas"]["ConfigOrigin"] | null;
            /** @default {} */
            host_env?: {
                [key: string]: string;
            };
            /** @default null */
            network?: components["schemas"]["NetworkRequest"] | null;
            /** @default [] */
            secrets?: string[];
            /** @default [] */
            ports?: string[];
            /** @default null */
            workspace?: string | null;
            /** @default false */
            workspace_secrets?: boolean;
            /** @default [] */
            volumes?: string[];
            /**
             * @default show
             * @enum {unknown}
             */
            workspace_ignored?: "hide" | "show";
            /** @default null */
            workspace_branch?: string | null;
            /**
             * @default missing
             * @enum {unknown}
             */
            pull?: "always" | "missing" | "never";
            /** @default null */
            entrypoint?: string[] | null;
            /** @default null */
            template?: string | null;
            /** @default [] */
            agents?: string[];
            /** @default true */
            agent_logins?: boolean;
            /** @default null */
            workspace_path?: string | null;
        };
        /**
         * SandboxUpdate
         * @description A merge: what is left out stays, null takes away. Of `labels` each is one of its own. A time
         *         to live begins anew, from now.
         */
        SandboxUpdate: {
            name?: string | null;
            labels?: {
                [key: string]: string | null;
            };
            ttl_seconds?: number | null;
            idle_seconds?: number | null;
            /** @enum {unknown} */
            on_ttl?: "remove" | "stop";
            /** @enum {unknown} */
            on_idle?: "remove" | "stop";
        };
        /**
         * SandboxUsage
         * @description What a sandbox has used since it was started. None: not knowable here, never a guess.
         *
         *         `counted_by` says what counted the time and the memory. `throttled_seconds`: how long processes
         *         had to wait because of the limit of cpus. `disk_bytes`: what its files take now, where they have
         *         a bound.
         */
        SandboxUsage: {
            counted_by: string;
            cpu_seconds: number | null;
            throttled_seconds: number | null;
            memory_bytes: number | null;
            peak_memory_bytes: number | null;
            processes: number | null;
            disk_bytes: number | null;
        };
        /**
         * SandboxUse
         * @description What a sandbox has used since it was started, or in its last run; null: nobody knows.
         */
        SandboxUse: {
            /** @enum {unknown} */
            state: "creating" | "error" | "removing" | "running" | "stopped";
            usage: components["schemas"]["SandboxUsage"] | null;
        };
        /**
         * SecretInfo
         * @description A secret as shown. `kept`: where its value is. `sandboxes`: the names (or ids) of those that
         *         it is bound to.
         */
        SecretInfo: {
            name: string;
            created_at: number;
            rotated_at: number | null;
            /** @enum {unknown} */
            kept: "file" | "keyring";
            sandboxes: string[];
        };
        /** SecretList */
        SecretList: {
            secrets: components["schemas"]["SecretInfo"][];
        };
        /**
         * SecretValue
         * @description `rotate`: only if there is a secret of that name.
         */
        SecretValue: {
            value: string;
            /** @default false */
            rotate?: boolean;
        };
        /**
         * SessionPage
         * @description `next`: the `after` of the following page; None: there is none.
         */
        SessionPage: {
            sessions: components["schemas"]["AgentSession"][];
            next: number | null;
        };
        /** Signal */
        Signal: {
            /** @default null */
            signal?: number | null;
            /** @default false */
            kill?: boolean;
        };
        /**
         * Started
         * @description It runs. `stdin_window`: how much of stdin is read ahead of the command. `stdin_offset`: how
         *         much of its stdin had come before, of a job that nobody else is attached to: whoever was cut off
         *         goes on from there.
         */
        Started: {
            /** @enum {unknown} */
            event: "started";
            pid: number;
            stdin_window: number;
            stdin_offset: number | null;
        };
        /**
         * Status
         * @description Sandboxes and jobs by state; `memory_bytes` is the daemon's own.
         */
        Status: {
            sandboxes: {
                [key: string]: number;
            };
            jobs: {
                [key: string]: number;
            };
            memory_bytes: number;
            uptime_seconds: number;
        };
        /** Stop */
        Stop: {
            /** @default 5 */
            grace_seconds?: number;
        };
        /** TagImage */
        TagImage: {
            image: string;
            name: string;
        };
        /**
         * Taken
         * @description So many bytes of stdin are on their way to the command, since the stream began.
         */
        Taken: {
            /** @enum {unknown} */
            event: "taken";
            bytes: number;
        };
        /**
         * Template
         * @description One that is here. `source`: the repository and the commit it was made from, if it was.
         */
        Template: {
            name: string;
            image: string;
            digest: string;
            size_bytes: number;
            created: string;
            base: string;
            steps: components["schemas"]["TemplateStep"][];
            start: string | null;
            ready: components["schemas"]["ReadyCheck"] | null;
            description: string;
            source: string;
        };
        /** TemplateList */
        TemplateList: {
            templates: components["schemas"]["Template"][];
        };
        /**
         * TemplateSource
         * @description A repository to make a template of.
         */
        TemplateSource: {
            source: string;
            /** @default null */
            base?: string | null;
            /** @default null */
            run?: string[] | null;
            /** @default null */
            start?: string | null;
            /** @default null */
            ready?: components["schemas"]["ReadyCheck"] | null;
            /** @default false */
            no_cache?: boolean;
        };
        /**
         * TemplateStep
         * @description One of these.
         */
        TemplateStep: {
            run: string | null;
            copy: components["schemas"]["Copied"] | null;
            env: {
                [key: string]: string;
            } | null;
            workdir: string | null;
            user: string | null;
        };
        /**
         * Token
         * @description A token as shown: neither its secret, which nobody has, nor the secret's hash.
         */
        Token: {
            id: string;
            name: string;
            owner: string;
            scopes: string[];
            created_at: number;
            expires_at: number | null;
            last_used_at: number | null;
            revoked_at: number | null;
        };
        /** TokenList */
        TokenList: {
            tokens: components["schemas"]["Token"][];
        };
        /**
         * Traffic
         * @description So far. Bytes `up` are the guest's own; `refused` is what the kernel turned away, by kind.
         */
        Traffic: {
            flows: number;
            connections: number;
            denied: number;
            up: number;
            down: number;
            names: number;
            refused: {
                [key: string]: number;
            };
        };
        /** TreeWritten */
        TreeWritten: {
            files: number;
            bytes: number;
        };
        /**
         * Truncated
         * @description `output_bytes` are delivered; nothing more comes of this channel.
         */
        Truncated: {
            /** @enum {unknown} */
            event: "truncated";
            /** @enum {unknown} */
            channel: 1 | 2;
            offset: number;
        };
        /** Uploaded */
        Uploaded: {
            files: components["schemas"]["UploadedFile"][];
        };
        /**
         * UploadedFile
         * @description A file that was written, as the part called it.
         */
        UploadedFile: {
            path?: string;
            path_b64?: string;
            size: number;
        };
        /**
         * Usage
         * @description What a command used, with all it started that had ended by then. None: nobody counted it.
         *
         *         `peak_memory_bytes` is of the largest of its processes. `disk_written_bytes` leaves out files in
         *         memory. `output_bytes`: what it wrote to stdout and stderr.
         */
        Usage: {
            cpu_seconds: number | null;
            peak_memory_bytes: number | null;
            disk_written_bytes: number | null;
            output_bytes: number | null;
        };
        /**
         * Version
         * @description `api` is the number in the paths; `url`: where it listens on a network. The directory is told
         *         to those who may do everything.
         */
        Version: {
            version: string;
            api: number;
            pid: number;
            started_at: number;
            state_dir: string | null;
            url: string | null;
        };
        /**
         * VolumeInfo
         * @description A volume. `used_bytes`: what it takes on the disk, if that was asked for; `used_complete`
         *         false: it is that, and more, in directories too deep to be looked at.
         */
        VolumeInfo: {
            id: string;
            name: string;
            owner: string;
            state: string;
            exclusive: boolean;
            quota_bytes: number | null;
            created_at: number;
            sandboxes: components["schemas"]["VolumeUser"][];
            used_bytes: number | null;
            used_files: number | null;
            used_complete: boolean | null;
        };
        /** VolumeList */
        VolumeList: {
            volumes: components["schemas"]["VolumeInfo"][];
        };
        /**
         * VolumeUser
         * @description A sandbox that has the volume, running or not.
         */
        VolumeUser: {
            id: string;
            name: string | null;
            state: string;
            path: string;
            read_only: boolean;
        };
        /**
         * Wish
         * @description What the agent asked its user for, by the sandbox's own tools: a host to reach, or a port to
         *         be published. `change`: the command that would give it.
         */
        Wish: {
            /** @enum {unknown} */
            what: "host" | "port";
            host: string;
            port: number;
            reason: string;
            change: string;
        };
        /**
         * Words
         * @description Something to know before the command starts.
         */
        Words: {
            text: string;
        };
        /**
         * WorkspaceApplied
         * @description `complete`: every change that was asked for is made. Of a commit: `ref` is where it is,
         *         `parent` what that was before, and `commit` null if there was nothing to commit.
         */
        WorkspaceApplied: {
            files: components["schemas"]["AppliedFile"][];
            complete: boolean;
            ref: string | null;
            commit: string | null;
            parent: string | null;
        };
        /**
         * WorkspaceDiff
         * @description `truncated`: there are more changes, or more of the patch, than an answer holds.
         */
        WorkspaceDiff: {
            changes: components["schemas"]["FileChange"][];
            patch: string;
            truncated: boolean;
        };
        /**
         * Written
         * @description The file's size now.
         */
        Written: {
            size: number;
        };
    };
    responses: {
        /** @description What went wrong. */
        Problem: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
    };
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    getVersion: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Version"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    getStatus: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Status"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    shutDown: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Heard. */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Accepted"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    listSandboxes: {
        parameters: {
            query?: {
                label?: string[];
                state?: string[];
                owner?: string;
                after?: number;
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SandboxPage"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    createSandbox: {
        parameters: {
            query?: never;
            header?: {
                /** @description makes it safe to repeat: 1 to 256 characters */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["NewSandbox"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Sandbox"];
                    "text/event-stream": unknown;
                };
            };
            /** @description Made. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Sandbox"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    getSandbox: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SandboxDetail"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    removeSandbox: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; there is nothing to say. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Problem"];
        };
    };
    updateSandbox: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["SandboxUpdate"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Sandbox"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    getSandboxUsage: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SandboxUse"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    startSandbox: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Sandbox"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    stopSandbox: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Stop"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Sandbox"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    extendSandbox: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Extend"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Sandbox"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    probeSandbox: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Probe"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ProbeResult"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    listPorts: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PortList"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    publishPort: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewPort"];
            };
        };
        responses: {
            /** @description Made. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Port"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    unpublishPort: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
                /** @description Number of the port inside. */
                port: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; there is nothing to say. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Problem"];
        };
    };
    diffWorkspace: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WorkspaceDiff"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    applyWorkspace: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Apply"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WorkspaceApplied"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    discardWorkspace: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; there is nothing to say. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Problem"];
        };
    };
    listVolumes: {
        parameters: {
            query?: {
                owner?: string;
                usage?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VolumeList"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    createVolume: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewVolume"];
            };
        };
        responses: {
            /** @description Made. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VolumeInfo"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    getVolume: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the volume. */
                volume: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VolumeInfo"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    removeVolume: {
        parameters: {
            query?: {
                force?: boolean;
            };
            header?: never;
            path: {
                /** @description Id or name of the volume. */
                volume: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; there is nothing to say. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Problem"];
        };
    };
    exportVolume: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the volume. */
                volume: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-tar": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    importVolume: {
        parameters: {
            query?: {
                quota_bytes?: number;
                exclusive?: boolean;
            };
            header?: never;
            path: {
                /** @description Id or name of the volume. */
                volume: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/x-tar": unknown;
            };
        };
        responses: {
            /** @description Made. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VolumeInfo"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    execInSandbox: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Exec"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Result"];
                    "text/event-stream": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    run: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Run"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Result"];
                    "text/event-stream": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    streamExecInSandbox: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The stream begins. */
            101: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Problem"];
        };
    };
    streamRun: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The stream begins. */
            101: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Problem"];
        };
    };
    runBatch: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RunBatch"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Batch"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    listSandboxJobs: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobList"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    startJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Command"];
            };
        };
        responses: {
            /** @description Made. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    listJobs: {
        parameters: {
            query?: {
                sandbox?: string;
                state?: ("ended" | "lost" | "running")[];
                after?: number;
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobPage"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    streamJobOutput: {
        parameters: {
            query?: {
                stdout_offset?: number;
                stderr_offset?: number;
                follow?: boolean;
            };
            header?: {
                /** @description the last event that was seen; goes before the offsets */
                "Last-Event-ID"?: string;
            };
            path: {
                /** @description Id of the job. */
                job: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    getJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the job. */
                job: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Job"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    signalJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the job. */
                job: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Signal"];
            };
        };
        responses: {
            /** @description Done; there is nothing to say. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Problem"];
        };
    };
    attachJob: {
        parameters: {
            query?: {
                stdout_offset?: number;
                stderr_offset?: number;
                follow?: boolean;
                rows?: number;
                columns?: number;
                recent?: number;
                whole?: boolean;
            };
            header?: never;
            path: {
                /** @description Id of the job. */
                job: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The stream begins. */
            101: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Problem"];
        };
    };
    readFile: {
        parameters: {
            query: {
                path: string;
                user?: string;
                offset?: number;
                length?: number;
            };
            header?: {
                /** @description one range of bytes; instead of `offset` and `length` */
                Range?: string;
            };
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": unknown;
                };
            };
            /** @description The range that was asked for. */
            206: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    writeFile: {
        parameters: {
            query: {
                path: string;
                user?: string;
                mode?: string;
                append?: boolean;
                parents?: boolean;
            };
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/octet-stream": unknown;
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Written"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    uploadFiles: {
        parameters: {
            query: {
                path: string;
                user?: string;
                mode?: string;
            };
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "multipart/form-data": Record<string, never>;
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Uploaded"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    removeFile: {
        parameters: {
            query: {
                path: string;
                user?: string;
                recursive?: boolean;
            };
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; there is nothing to say. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Problem"];
        };
    };
    statFile: {
        parameters: {
            query: {
                path: string;
                user?: string;
                follow?: boolean;
            };
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Entry"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    listFiles: {
        parameters: {
            query: {
                path: string;
                user?: string;
            };
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["EntryList"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    makeDirectory: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["MakeDirectory"];
            };
        };
        responses: {
            /** @description Done; there is nothing to say. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Problem"];
        };
    };
    moveFile: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Move"];
            };
        };
        responses: {
            /** @description Done; there is nothing to say. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Problem"];
        };
    };
    downloadTree: {
        parameters: {
            query: {
                path: string;
                user?: string;
                limit_bytes?: number;
                limit_files?: number;
                prefix?: string;
            };
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-tar": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    uploadTree: {
        parameters: {
            query: {
                path: string;
                user?: string;
                limit_bytes?: number;
                limit_files?: number;
            };
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/x-tar": unknown;
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TreeWritten"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    watchFiles: {
        parameters: {
            query: {
                path: string;
                user?: string;
                recursive?: boolean;
            };
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    streamEvents: {
        parameters: {
            query?: {
                after?: number;
                sandbox?: string;
                follow?: boolean;
            };
            header?: {
                /** @description the last event that was seen; goes before `after` */
                "Last-Event-ID"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    streamSandboxLogs: {
        parameters: {
            query?: {
                after?: number;
                follow?: boolean;
            };
            header?: {
                /** @description the last event that was seen; goes before `after` */
                "Last-Event-ID"?: string;
            };
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    getNetwork: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NetworkState"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    replaceNetwork: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["NetworkRequest"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NetworkState"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    addNetworkRule: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["RuleChange"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NetworkState"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    switchNetworkPhase: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PhaseChoice"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NetworkState"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    explainNetwork: {
        parameters: {
            query: {
                host: string;
                port?: number;
                method?: string;
                path?: string;
            };
            header?: never;
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Explanation"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    streamNetworkLog: {
        parameters: {
            query?: {
                after?: number;
                follow?: boolean;
            };
            header?: {
                /** @description the last event that was seen; goes before `after` */
                "Last-Event-ID"?: string;
            };
            path: {
                /** @description Id or name of the sandbox. */
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    listImages: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImageList"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    removeImage: {
        parameters: {
            query: {
                image: string;
                force?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImageRemoved"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    inspectImage: {
        parameters: {
            query: {
                image: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImageDetail"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    pullImage: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PullImage"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImageInfo"];
                    "text/event-stream": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    saveImages: {
        parameters: {
            query?: {
                image?: string[];
                format?: "docker" | "oci";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-tar": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    loadImages: {
        parameters: {
            query?: {
                name?: string;
                platform?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/x-tar": unknown;
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImageList"];
                    "text/event-stream": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    importImage: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ImportImage"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImageInfo"];
                    "text/event-stream": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    tagImage: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TagImage"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImageInfo"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    findImage: {
        parameters: {
            query: {
                reference: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Reach"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    pruneImages: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["PruneImages"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ImagesPruned"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    buildImage: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/x-tar": unknown;
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Built"];
                    "text/event-stream": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    listBackends: {
        parameters: {
            query?: {
                check?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BackendList"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    getHealth: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Health"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    listAudit: {
        parameters: {
            query?: {
                after?: number;
                sandbox?: string;
                limit?: number;
                follow?: boolean;
            };
            header?: {
                /** @description the last line that was seen; goes before `after` */
                "Last-Event-ID"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AuditPage"];
                    "text/event-stream": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    getDiskUsage: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DiskUsage"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    pruneSystem: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Prune"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Pruned"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    listTemplates: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TemplateList"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    getTemplate: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the template. */
                template: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Template"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    buildTemplate: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the template. */
                template: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/x-tar": unknown;
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Template"];
                    "text/event-stream": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    removeTemplate: {
        parameters: {
            query?: {
                force?: boolean;
            };
            header?: never;
            path: {
                /** @description Name of the template. */
                template: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; there is nothing to say. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Problem"];
        };
    };
    buildTemplateFromSource: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the template. */
                template: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TemplateSource"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Template"];
                    "text/event-stream": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    listAgents: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentList"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    getAgent: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the agent. */
                agent: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentDetails"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    installAgent: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the agent. */
                agent: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["InstallRequest"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KitInfo"];
                    "text/event-stream": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    removeAgentKit: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the agent. */
                agent: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; there is nothing to say. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Problem"];
        };
    };
    listAgentSessions: {
        parameters: {
            query?: {
                agent?: string;
                project?: string;
                state?: ("ended" | "failed" | "lost" | "running" | "starting")[];
                after?: number;
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionPage"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    startAgentSession: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AgentRequest"];
            };
        };
        responses: {
            /** @description Made. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentSession"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    getAgentSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the session. */
                session: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentSession"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    removeAgentSession: {
        parameters: {
            query?: {
                keep_sandbox?: boolean;
            };
            header?: never;
            path: {
                /** @description Id of the session. */
                session: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; there is nothing to say. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Problem"];
        };
    };
    stopAgentSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the session. */
                session: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentSession"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    streamAgentSessionEvents: {
        parameters: {
            query?: {
                after?: number;
                follow?: boolean;
            };
            header?: {
                /** @description the last event that was seen; goes before `after` */
                "Last-Event-ID"?: string;
            };
            path: {
                /** @description Id of the session. */
                session: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    promptAgentSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the session. */
                session: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AgentPrompt"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentSession"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    cancelAgentSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the session. */
                session: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done; there is nothing to say. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Problem"];
        };
    };
    answerAgentSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the session. */
                session: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PermissionAnswer"];
            };
        };
        responses: {
            /** @description Done; there is nothing to say. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            default: components["responses"]["Problem"];
        };
    };
    summarizeAgentSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the session. */
                session: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentSummary"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    diffAgentSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the session. */
                session: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WorkspaceDiff"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    applyAgentSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the session. */
                session: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Apply"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WorkspaceApplied"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    getAgentSessionRecording: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id of the session. */
                session: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-asciicast": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    listAgentLogins: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LoginList"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    getAgentLogin: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the agent. */
                agent: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LoginStatus"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    setAgentLogin: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the agent. */
                agent: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["GivenLogin"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LoginStatus"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    removeAgentLogin: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the agent. */
                agent: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LoginStatus"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    refreshAgentLogin: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the agent. */
                agent: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LoginStatus"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    beginAgentLogin: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the agent. */
                agent: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["LoginBegin"];
            };
        };
        responses: {
            /** @description Made. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LoginBox"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    harvestAgentLogin: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the agent. */
                agent: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["LoginHarvest"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LoginStatus"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    listSecrets: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SecretList"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    setSecret: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the secret. */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SecretValue"];
            };
        };
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SecretInfo"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    removeSecret: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the secret. */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SecretInfo"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    listTokens: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TokenList"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    createToken: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewToken"];
            };
        };
        responses: {
            /** @description Made. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MadeToken"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    revokeToken: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Id or name of the token. */
                token: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Token"];
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    getMetrics: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    getOpenApi: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, never>;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
    getDocs: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Done. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/html": unknown;
                };
            };
            default: components["responses"]["Problem"];
        };
    };
}
