/** agentkernel: the place where AI agents run code. The public door. */

export { Agent, type AgentOptions, type AgentTurn, type AgentUpdate } from "./agent.ts";
export { AgentLogins, type LoginBox, type LoginStatus } from "./agent-logins.ts";
export {
  AgentSession,
  type AgentSessionEvent,
  type AgentSessionInfo,
  type AgentSessionSummary,
  AgentSessions,
  type StartSessionOptions,
  type TurnResult,
} from "./agent-sessions.ts";
export {
  type AgentDetails,
  type AgentInfo,
  Agents,
  type InstallOptions,
  type KitInfo,
} from "./agents.ts";
export { type CallOptions, Client, type ClientOptions } from "./client.ts";
export {
  type Command,
  type CommandOptions,
  CommandStream,
  type SignalNumber,
  type StreamOptions,
} from "./commands.ts";
export * from "./error-types.ts";
export { AgentKernelError, type ErrorOptions } from "./errors.ts";
export {
  type Content,
  type FileOptions,
  Files,
  type GuestPath,
  type RangeOptions,
  type TreeOptions,
} from "./files.ts";
export { type EventOptions, Host } from "./host.ts";
export { type ImageInfo, Images, type LayerProgress, type PullOptions } from "./images.ts";
export { Job, type JobOptions, Jobs, type OutputOptions } from "./jobs.ts";
export { Network, type NetworkState, type RuleOptions, type WhyOptions } from "./network.ts";
export { Ports, type PublishedPort } from "./ports.ts";
export {
  type Change,
  type Chunk,
  CommandResult,
  type Entry,
  type Event,
  type FileType,
  type JobInfo,
  type Outcome,
  type SandboxInfo,
  type TreeSummary,
} from "./results.ts";
export { type RunOptions, type RunStreamOptions, run, runBatch, runStream } from "./runs.ts";
export {
  type AtEnd,
  type CreateOptions,
  type ExecOptions,
  Sandbox,
  type UpdateOptions,
} from "./sandbox.ts";
export { Secrets } from "./secrets.ts";
export type { SandboxSpec } from "./specs.ts";
export {
  type TemplateInfo,
  type TemplateOptions,
  type TemplateReady,
  type TemplateSpec,
  type TemplateStep,
  Templates,
} from "./templates.ts";
export { type TokenOptions, Tokens } from "./tokens.ts";
export { type VolumeInfo, type VolumeOptions, Volumes } from "./volumes.ts";
export type { Schemas } from "./wire.ts";
export { Workspace, type WorkspaceApplied, type WorkspaceDiff } from "./workspace.ts";
