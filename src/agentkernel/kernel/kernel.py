"""The kernel as a library: sandboxes with names, a state that survives, commands, jobs, events.

    async with Kernel() as kernel:
        sandbox = await kernel.create(SandboxSpec(), name="work")
        result = await kernel.run("work", ["python3", "-c", "print(6*7)"])

One Kernel owns a state directory (StateLockedError otherwise). Sandboxes outlive it: closing it, or
killing its process, leaves them and their jobs running, and the next Kernel finds them again.
"""

from __future__ import annotations

from builtins import list as List
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from agentkernel.audit.log import Retention
from agentkernel.audit.trail import Trail, audited
from agentkernel.backends.base import Sandbox
from agentkernel.backends.local.layer_worker import LocalLayerWorker
from agentkernel.backends.registry import DEFAULT_BACKEND, Backends
from agentkernel.images.view import View
from agentkernel.kernel.admission import Admission
from agentkernel.kernel.agents.agents import Agents
from agentkernel.kernel.auditing import open_trail
from agentkernel.kernel.builds import Builds
from agentkernel.kernel.engines import Engines
from agentkernel.kernel.images import Images
from agentkernel.kernel.jobs import Jobs
from agentkernel.kernel.life import Lives, blueprint_of
from agentkernel.kernel.live import Live
from agentkernel.kernel.network_control import NetworkControl, setting_of
from agentkernel.kernel.network_making import NetworkMaking
from agentkernel.kernel.networks import Networks
from agentkernel.kernel.ports import Ports
from agentkernel.kernel.probe.findings import ProbeResult
from agentkernel.kernel.reaper import Reaper
from agentkernel.kernel.reconcile import reconcile
from agentkernel.kernel.secrets import Secrets
from agentkernel.kernel.state import state_directory
from agentkernel.kernel.store import SandboxRecord, StateLock, Store, event_of
from agentkernel.kernel.system import System
from agentkernel.kernel.templates import Templates
from agentkernel.kernel.tokens import Tokens
from agentkernel.kernel.volumes import Volumes
from agentkernel.kernel.watch import Watch
from agentkernel.kernel.workspaces import Workspaces
from agentkernel.network.policy.model import NetworkSetting, Operator
from agentkernel.space import set_reserve


class Kernel(Lives):
    """See the module. `id` in its calls is an id or a name."""

    def __init__(
        self,
        state_dir: Path | None = None,
        *,
        admission: Admission | None = None,
        audit: Retention | None = None,
        operator: Operator | None = None,
    ) -> None:
        self.state_dir = state_dir or state_directory()
        self.backends = Backends(self.state_dir)
        self.engines = Engines(self.state_dir)
        self._admission = admission or Admission()
        set_reserve(self._admission.disk_reserve_bytes)
        self._lock = StateLock(self.state_dir)
        self._audit = audit
        self._operator = operator
        self.trail: Trail
        self._live: dict[str, Live] = {}
        self._store: Store
        self.jobs: Jobs
        self.ports: Ports
        self.tokens: Tokens
        self.secrets: Secrets
        self.networks: Networks
        self.network: NetworkControl
        self.workspaces: Workspaces
        self.volumes: Volumes
        self.system: System
        self.images: Images
        self.builds: Builds
        self.templates: Templates
        self.agents: Agents
        self._making = NetworkMaking(self.state_dir)
        self._reaper: Reaper

    async def __aenter__(self) -> Kernel:
        self._lock.acquire()
        try:
            self.trail = open_trail(self.state_dir, self._audit)
        except BaseException:
            self._lock.release()
            raise
        try:
            self._store = await Store.open(self.state_dir / "state.db")
        except BaseException:
            self.trail.close()
            self._lock.release()
            raise
        self.jobs = Jobs(self._store, self._find, self.trail)
        self.ports = Ports(self._store, self._find, self.trail)
        self.tokens = Tokens(self._store, self.trail)
        self.secrets = Secrets(self.state_dir, self._store, self.trail)
        operator = self._making.operator() if self._operator is None else self._operator
        self.networks = Networks(self.state_dir, self._store, operator, self._secret_values)
        self.secrets.on_change = self.networks.secrets_changed
        self.network = NetworkControl(
            self._store, self._find, self.trail, self.networks, self._making, self._image_view
        )
        self.images = Images(self.state_dir, self._store, self.trail, LocalLayerWorker())
        self.builds = Builds(self, self.trail, LocalLayerWorker())
        self.templates = Templates(self, self.trail)
        self.workspaces = Workspaces(self._store, self._find, self.trail, self.backends)
        native = self.backends[DEFAULT_BACKEND]
        self.volumes = Volumes(self._store, self.trail, self.state_dir, native)
        self.agents = Agents(self)
        self.system = System(
            self._store,
            self.trail,
            self.state_dir,
            self.volumes,
            self.images,
            self.agents.kits,
            self._remove_pruned,
        )
        self._reaper = Reaper(self, Watch(self._store, self.jobs))
        try:
            await self.tokens.load()
            await self.backends.collect_garbage()
            await self.volumes.load()
            await self.agents.kits.load()
            self._live = await reconcile(self._store, self.backends, self.trail)
            for record in await self._store.all_sandboxes():
                if record.state in ("running", "error"):
                    self.volumes.hold_again(record)
            await self.networks.find(await self._with_a_way_out())
            self.networks.keep_only(self._live)
            await self.jobs.refresh_all(self._live.values())
            await self.ports.open_all(self._live)
            await self.agents.sessions.load()
        except BaseException:
            await self._close()
            raise
        self._reaper.start()
        self.agents.logins.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._reaper.stop()
        await self.agents.sessions.close()
        await self.agents.logins.close()
        await self._close()

    async def _close(self) -> None:
        """Lets go of everything; what runs goes on."""
        await self.agents.kits.close()
        await self.images.close()
        await self.networks.close()
        await self.workspaces.close()
        await self.ports.close_all()
        for live in self._live.values():
            if live.sandbox:
                live.sandbox.channel.close()
        self._live.clear()
        await self.tokens.close()
        await self.secrets.close()
        await self._store.close()
        self.trail.close()
        self._lock.release()

    @audited("sandbox.probe")
    async def probe(self, id: str, *, owner: str | None = None) -> ProbeResult:
        """What a guest can reach, tried from inside a running sandbox, which stays as it is."""
        from agentkernel.kernel.probe.running import probe_sandbox

        _, live = await self._find(id, owner)
        with live.used() as sandbox:
            return await probe_sandbox(sandbox)

    async def _image_view(self, record: SandboxRecord) -> View | None:
        return await self.backends[record.backend].image_view(blueprint_of(record))

    async def _secret_values(
        self, owners: Iterable[str], references: Iterable[str]
    ) -> Mapping[str, bytes]:
        # Last: an owner may be called as the machine's own are, and must not stand in for them.
        wanted = list(references)
        return {
            **await self.secrets.values(wanted),
            **await self.secrets.values_of(owners),
            **self._making.values(wanted),
        }

    async def _with_a_way_out(self) -> List[tuple[Sandbox, str, NetworkSetting]]:
        found = []
        for live in self._live.values():
            if live.sandbox:
                record = await self._store.get_sandbox(live.id)
                if setting := setting_of(record):
                    found.append((live.sandbox, record.owner, setting))
        return found

    # -- inside ---------------------------------------------------------------------------------

    @property
    def live(self) -> Mapping[str, Live]:
        return self._live

    async def tell(self, record: SandboxRecord, kind: str, **body: Any) -> None:
        await self._store.append_events([event_of(record, kind, **body)])
