// One simulated process of the service: the modules that move money, wired as in server/app.ts.
import { setTimeout as sleep } from "node:timers/promises";
import fp from "fastify-plugin";
import type { FastifyInstance, FastifyPluginAsync } from "fastify";
import { Registry } from "prom-client";
import type { Config } from "../../server/config.ts";
import chains from "../../server/infra/chain/index.ts";
import chainReads from "../../server/infra/chain/reads.ts";
import db from "../../server/infra/db/index.ts";
import kms from "../../server/infra/kms.ts";
import outbound from "../../server/infra/outbound/outbound.ts";
import readiness from "../../server/infra/readiness.ts";
import agents from "../../server/plugins/agents/index.ts";
import allowances from "../../server/plugins/allowances/index.ts";
import approvals from "../../server/plugins/approvals/index.ts";
import { ChannelStates } from "../../server/plugins/channels/states.ts";
import walletChannels from "../../server/plugins/channels/wallet-plugin.ts";
import custody from "../../server/plugins/custody/index.ts";
import facilitator from "../../server/plugins/facilitator/index.ts";
import listings from "../../server/plugins/listings/index.ts";
import guardrails from "../../server/plugins/guardrails/index.ts";
import merchants from "../../server/plugins/merchants/index.ts";
import orders from "../../server/plugins/orders/index.ts";
import owners from "../../server/plugins/owners/index.ts";
import payments from "../../server/plugins/payments/index.ts";
import reconciliation from "../../server/plugins/reconciliation/index.ts";
import recovery from "../../server/plugins/recovery/index.ts";
import settlement from "../../server/plugins/settlement/index.ts";
import stop from "../../server/plugins/stop/index.ts";
import withdrawals from "../../server/plugins/withdrawals/index.ts";
import x402Client from "../../server/plugins/x402-client/index.ts";
import { Host } from "./host.ts";
import { inside, type Actor, type Timeline } from "./time.ts";

const MODULES: unknown[] = [
  kms,
  db,
  chains,
  chainReads,
  readiness,
  outbound,
  owners,
  orders,
  custody,
  guardrails,
  agents,
  recovery,
  stop,
  approvals,
  settlement,
  reconciliation,
  allowances,
  payments,
  withdrawals,
  facilitator,
  fp(async (app: FastifyInstance) => {
    const [network] = app.config.networks;
    if (!network) throw new Error("a world has one network");
    const { chainId, blockTimeMs } = network;
    const { rpc, heads } = app.chainReads.of(chainId);
    const pause = (ms: number) => sleep(ms);
    const states = new ChannelStates({ rpc, heads, blockTimeMs, pause });
    await app.register(walletChannels, { states: () => states });
  }),
  merchants,
  listings,
  x402Client,
];

export interface LogLine {
  level: string;
  text: string;
  fields: unknown;
}

/** A process of the service. `crash` is a kill: nothing that it planned happens any more. */
export class Service implements Actor {
  readonly name: string;
  readonly world: Timeline;
  isGone = false;
  frozenUntilMs = 0;
  skewMs = 0;
  readonly logs: LogLine[] = [];
  readonly tasks = new Map<string, { run: (payload: unknown) => Promise<void>; cron?: string }>();
  readonly host: Host;
  isReady = false;
  /** Requests in progress: each is told when the process is killed. */
  readonly callers = new Set<() => void>();
  /** What handlers threw that is no refusal of the service. */
  readonly thrown: unknown[] = [];
  failed: unknown;

  constructor(world: Timeline, name: string, config: Config) {
    this.world = world;
    this.name = name;
    this.host = new Host({
      config,
      log: this.#log(),
      metrics: new Registry(),
      authenticators: new Map(),
      knownRoutes: [],
      jobs: this.#jobs(),
      countFor: () => undefined,
      isAdmittedMerchant: () => false,
      functions: { assertInstalled: () => undefined },
    });
  }

  get app(): FastifyInstance {
    return this.host.app;
  }

  /** `onFailed`: as a process that exits because it cannot start. */
  start(onFailed: () => void): void {
    inside(this, () => {
      this.#start().catch((error: unknown) => {
        this.failed = error;
        onFailed();
      });
    });
  }

  async #start(): Promise<void> {
    for (const module of MODULES) await this.host.register(module as FastifyPluginAsync);
    // What the MCP server does when its client cancels a call.
    this.app.post("/cancel", async ({ body }) => {
      const { agentId, call } = body as { agentId: string; call: string };
      await this.app.cancelCall(agentId, call);
      return {};
    });
    await this.host.ready();
    this.isReady = true;
  }

  #log(): object {
    const note = (level: string) => (first: unknown, text?: string) =>
      void this.logs.push(
        typeof first === "string"
          ? { level, text: first, fields: {} }
          : { level, text: text ?? "", fields: first },
      );
    const levels = ["trace", "debug", "info", "warn", "error", "fatal"];
    const log: Record<string, unknown> = Object.fromEntries(
      levels.map((level) => [level, note(level)]),
    );
    return Object.assign(log, { child: () => log });
  }

  async runTask(name: string, payload: unknown = {}): Promise<void> {
    try {
      await this.tasks.get(name)?.run(payload);
    } catch (error) {
      this.logs.push({ level: "warn", text: `job ${name}`, fields: { err: error } });
    }
  }

  /** The world runs the tasks: see `World`. */
  #jobs(): object {
    return {
      addTask: (
        name: string,
        run: (payload: unknown) => Promise<void>,
        { cron }: { cron?: string } = {},
      ) => void this.tasks.set(name, { run, ...(cron !== undefined && { cron }) }),
      enqueue: async (name: string, payload: unknown) => {
        this.world.after(50, this, `job ${name}`, () => void this.runTask(name, payload));
      },
    };
  }
}
