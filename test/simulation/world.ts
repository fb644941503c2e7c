// A world: some processes of the service, one database, one chain, and actors that use the service. Everything that
// happens in it follows from its seed.
import type { Address, Hex } from "viem";
import { privateKeyToAddress } from "viem/accounts";
import { loadConfig, type Config } from "../../server/config.ts";
import { newId } from "../../server/core/ids.ts";
import { COME_AGAIN } from "../helpers/come-again.ts";
import { Random } from "../helpers/random.ts";
import {
  AwaitedReceipt,
  EndpointDown,
  EndpointSilent,
  respond,
  SimulatedChain,
  type MineOptions,
} from "./chain/chain.ts";
import { Database, type Backends } from "./database.ts";
import type { KnownAgent } from "./agents.ts";
import { Connection, type Answer, type Call, type Lost, wordOf } from "./host.ts";
import { giveBackClients } from "./prisma-client.ts";
import { Records } from "./records.ts";
import { Sales } from "./sales.ts";
import { Service } from "./service.ts";
import { currentActor, inside, Timeline, type Actor } from "./time.ts";
import { Network, type Server } from "./undici.ts";

export const CHAIN_ID = 84532;
export const USDC: Address = "0x036CbD53842c5426634e7929541eC2318f3dCF7e";
/** 2027-01-15. */
export const START_MS = 1_800_000_000_000;
const RELAYER_KEYS = [1, 2].map((key): Hex => `0x${String(key).repeat(64)}`);
/** Signs the vouchers of agents' channels, and sends their withdrawals. */
const CHANNEL_KEY: Hex = `0x${"3".repeat(64)}`;
/** A process that could not start is started again after this. */
const RESTART_MS = 2_000;
/** Two lanes cost twice as many looks at the queue. */
const TWO_LANES = 0.3;
const CLOSING_MS = 10_000;
/** As long as the service gives itself; what is left is killed. */
const STOPPING_MS = 30_000;
/** URLs of endpoints often contain a key. */
const ENDPOINT_KEY = "c0ffee9d4e6b4a1f";
const ENDPOINTS = [1, 2, 3].map((number) => `http://node-${number}.test/${ENDPOINT_KEY}`);
const MASTER_KEY = "Zx2fBq0vT7nJm4kLr8sWc1dYh6gPu3eAo9iXt5bNfQE=";
/** None of them may be in a log. */
export const SECRETS = [
  MASTER_KEY,
  ENDPOINT_KEY,
  ...[...RELAYER_KEYS, CHANNEL_KEY].map((key) => key.slice(2)),
];
const NATIVE_PRICE = 3_000;
export const NATIVE_PRICE_ATOMIC = BigInt(NATIVE_PRICE) * 1_000_000n;
/** Watching is dear and finds nothing new in a world that waits; with these a quiet hour costs little. */
const TIMINGS = {
  laneLeaseMs: 10_000,
  laneRenewMs: 4_000,
  laneRetryMs: 6_000,
  laneLookMs: 8_000,
  watchLeaseMs: 20_000,
  watchRoundMs: 8_000,
  reconcileRoundMs: 20_000,
  idleHeadMs: 8_000,
  webhookLookMs: 5_000,
};

/**
 * A payment that somebody asked for. No two of a world have the same payer, payee and amount, so the chain shows how
 * often each one happened.
 */
export interface Intent {
  who: string;
  from: Address;
  to: Address;
  amountAtomic: bigint;
  /** Every answer in the order of arrival. The last one is the outcome that its client believes in. */
  answers: (Answer | Lost)[];
  /** What the client was told in the end; undefined while it has no outcome. */
  outcome?: "paid" | "not paid";
  /** How long it took to have it. */
  tookMs?: number;
  /** It may have happened or not; nobody was told. */
  isForgotten?: boolean;
}

/** Somebody outside the service: an agent, an owner, a seller. Its code never crashes. */
export class Client implements Actor {
  readonly name: string;
  readonly world: Timeline;
  isGone = false;
  frozenUntilMs = 0;
  skewMs = 0;
  constructor(world: Timeline, name: string) {
    this.world = world;
    this.name = name;
  }
}

export class World {
  readonly seed: number;
  readonly random: Random;
  readonly timeline: Timeline;
  readonly database: Database;
  readonly network: Network;
  readonly chain: SimulatedChain;
  /** How many of the relayers serve. */
  readonly lanes: number;
  readonly config: Config;
  services: Service[] = [];
  /** Processes that were killed, for their logs. */
  readonly dead: Service[] = [];
  readonly agents: readonly KnownAgent[];
  /** One that every configuration has. */
  readonly relayer = [...RELAYERS][0] as Hex;
  /** Those that act in this world. */
  active: readonly KnownAgent[];
  /** What was asked for, and what was answered. */
  readonly intents: Intent[] = [];
  /** What actors did not expect. */
  readonly failures: string[] = [];
  /** What owners and agents did, for the invariants. */
  readonly records = new Records();
  /** What sellers, their payers and agents that buy from them did. */
  readonly sales = new Sales();
  /** Grows when a process dies, a client has an answer, or a block has transactions. */
  happened = 0;
  isMining = true;
  /** What the makers of blocks take and leave out. */
  mining: MineOptions = {};
  /** Faults that happened, and facts about them that explain what would be a defect without them. */
  readonly faults = new Set<string>();
  deepestReorganisation = 0;
  /** The one endpoint that lies: the product believes two. */
  liar: number | undefined;
  /** Responses of an endpoint take this much longer. */
  readonly delaysMs = new Map<number, number>();
  readonly #ends = new Set<() => void>();
  #asleepUntilMs = 0;
  #started = 0;
  #amounts = 0n;

  constructor(
    seed: number,
    backends: Backends,
    agents: readonly KnownAgent[],
    url: string,
    startMs = START_MS,
  ) {
    this.seed = seed;
    this.random = new Random(seed);
    this.timeline = new Timeline(this.random, startMs);
    this.database = new Database(this.timeline, backends);
    this.network = new Network(this.timeline);
    this.agents = agents;
    this.lanes = this.random.next() < TWO_LANES ? 2 : 1;
    this.config = configOf(url, this.lanes);
    this.active = agents;
    this.chain = new SimulatedChain({
      chainId: CHAIN_ID,
      usdc: USDC,
      nowMs: () => this.timeline.nowMs,
      relayers: [...RELAYERS, CHANNEL_ACCOUNT],
      endpoints: ENDPOINTS.length,
    });
    for (const [index, url] of ENDPOINTS.entries())
      this.network.servers.set(new URL(url).origin, this.#endpoint(index));
    this.#planBlock();
    this.#planTasks();
    this.#planClosing();
  }

  /** Draws the ids that were left from the last world, so that the first id of this one comes from its own seed. */
  renewIds(): void {
    const actor = new Client(this.timeline, "ids");
    inside(actor, () => {
      const before = this.random.drawn;
      while (this.random.drawn === before) newId("req");
    });
  }

  startService(): Service {
    const service = new Service(this.timeline, `p${(this.#started += 1)}`, this.config);
    this.services.push(service);
    service.start(() => {
      if (service.isGone) return;
      this.crash(service);
      this.timeline.after(RESTART_MS, undefined, "restart", () => void this.startService());
    });
    return service;
  }

  /** A kill: what the process planned never happens, and its connections end. */
  crash(service: Service): void {
    this.timeline.note(`CRASH of ${service.name}`);
    this.happened += 1;
    service.isGone = true;
    this.services = this.services.filter((each) => each !== service);
    this.dead.push(service);
    this.database.cut((session) => session.actor === service);
    for (const fail of service.callers) fail();
  }

  /** One HTTP request. The response may be lost; then nobody knows what became of it. */
  request(
    client: Client,
    service: Service,
    call: Call,
    timeoutMs = 65_000,
  ): Promise<Answer | Lost> {
    const { timeline, network } = this;
    return new Promise((resolve) => {
      const lost = (why: string) => () => {
        service.callers.delete(cut);
        resolve({ status: 0, body: { code: why } });
      };
      const cut = (): void =>
        void timeline.after(
          network.latencyMs(),
          client,
          "connection lost",
          lost("connection lost"),
        );
      const connection = new Connection();
      let isLeft = false;
      const late = timeline.after(timeoutMs, client, "gave up", () => {
        isLeft = true;
        lost("gave up")();
        timeline.after(network.latencyMs(), service, "its client is gone", () =>
          connection.break(),
        );
      });
      const answer = (found: Answer): void => {
        service.callers.delete(cut);
        // A service cannot know that its client has just left: it takes the response for delivered. Left out here.
        if (isLeft) connection.break();
        if (connection.destroyed) return;
        // A response that is written completely arrives.
        connection.finish();
        late.isCanceled = true;
        timeline.after(
          network.latencyMs(),
          client,
          `answer ${found.status} to ${call.route}`,
          () => {
            this.happened += 1;
            resolve(found);
          },
        );
      };
      if (service.isGone) return cut();
      service.callers.add(cut);
      timeline.after(network.latencyMs(), service, `${client.name}: ${call.route}`, () => {
        if (!service.isReady) return answer({ status: 503, body: { code: "service_unavailable" } });
        service.host.call(call, connection).then(answer, (error: unknown) => {
          answer({ status: 500, body: { code: "internal_error", message: String(error) } });
          service.thrown.push(error);
        });
      });
    });
  }

  intend(intent: Omit<Intent, "answers">): Intent {
    const made = { ...intent, answers: [] };
    this.intents.push(made);
    return made;
  }

  /** About this amount, and different from all others of this world. */
  newAmount(aboutAtomic: bigint): bigint {
    this.#amounts += 1n;
    return aboutAtomic - (aboutAtomic % 1_000n) + this.#amounts;
  }

  /**
   * Asks like a careful client: again, at any process, with the same key, until there is an outcome. For longer than the
   * longest fault, which is a minute and a half of gas that is too dear.
   */
  async untilAnswered(intent: Intent, call: Call, tries = 120): Promise<Answer | Lost> {
    const client = currentActor() as Client;
    const fromMs = this.timeline.nowMs;
    let answer: Answer | Lost = NO_ANSWER;
    for (let count = 0; count < tries;) {
      const service = this.anyService();
      if (service) count += 1;
      answer = service ? await this.request(client, service, call, this.patienceMs()) : NO_ANSWER;
      intent.answers.push(answer);
      const { status, body } = answer;
      const code = wordOf(body["code"]);
      this.timeline.note(`${client.name}: ${intent.who} is answered ${status} ${code}`);
      if (isOutcome(answer)) {
        intent.outcome = status === 200 ? "paid" : "not paid";
        intent.tookMs = this.timeline.nowMs - fromMs;
        break;
      }
      await pause(
        this.random.next() < 0.4 ? this.random.int(20, 400) : this.random.int(300, 4_300),
      );
    }
    return answer;
  }

  /** The same request again, at any process, until it is answered. `each` sees every answer. */
  async ask(
    call: Call,
    each?: (answer: Answer | Lost) => void,
    tries = 30,
  ): Promise<Answer | Lost> {
    const client = currentActor() as Client;
    let answer: Answer | Lost = NO_ANSWER;
    for (let count = 0; count < tries; count += 1) {
      const service = this.anyService();
      answer = service ? await this.request(client, service, call, this.patienceMs()) : NO_ANSWER;
      const { status, body } = answer;
      this.timeline.note(
        `${client.name}: ${call.route} is answered ${status} ${wordOf(body["code"])}`,
      );
      each?.(answer);
      if (isOutcome(answer)) break;
      await pause(
        this.random.next() < 0.4 ? this.random.int(20, 400) : this.random.int(300, 4_300),
      );
    }
    return answer;
  }

  /** How long a client waits: sometimes it goes away early, and asks again. */
  patienceMs(): number {
    return this.random.next() < 0.25 ? this.random.int(20, 4_000) : 65_000;
  }

  /** A process that takes requests, or undefined while there is none. */
  anyService(): Service | undefined {
    const ready = this.services.filter(({ isReady }) => isReady);
    return ready.length > 0 ? this.random.pick(ready) : undefined;
  }

  /** A fault that lasts for this long, or until all faults end. */
  async lasting(ms: number, end: () => void): Promise<void> {
    this.#ends.add(end);
    await pause(ms);
    if (this.#ends.delete(end)) end();
  }

  /** The last blocks are replaced; what they held returns to the pools, or is dropped. */
  reorganise(depth: number, options: Parameters<SimulatedChain["reorganise"]>[1] = {}): void {
    this.timeline.note(`REORGANISATION of ${depth} blocks`);
    this.faults.add("reorganisation");
    this.deepestReorganisation = Math.max(this.deepestReorganisation, depth);
    this.chain.reorganise(depth, options);
  }

  /** More blocks were replaced than count as final: what was in them may be lost for good, and nothing else is. */
  get wasFinalityBroken(): boolean {
    return this.deepestReorganisation > 2;
  }

  /** All faults end, so that everything that can become final does. */
  heal(): void {
    for (const end of this.#ends) end();
    this.#ends.clear();
    this.isMining = true;
    this.mining = {};
    this.database.isDown = false;
    this.database.silentUntilMs = 0;
    for (const service of this.services) service.frozenUntilMs = 0;
    if (this.services.length === 0) this.startService();
  }

  /** No process runs, and no block is made, for a long time. */
  async sleep(ms: number): Promise<void> {
    const untilMs = this.timeline.nowMs + ms;
    this.timeline.note(`everything sleeps for ${(ms / 3_600_000).toFixed(2)} hours`);
    for (const service of this.services.slice()) this.crash(service);
    this.#asleepUntilMs = untilMs;
    await this.timeline.runUntil(untilMs);
  }

  /** The time to the next event of a rhythm, which stops while everything sleeps. */
  #pauseOf(ms: number): number {
    return Math.max(ms, this.#asleepUntilMs - this.timeline.nowMs);
  }

  /** Ends a process as a deployment does: it answers what it has, for a while. */
  async stop(service: Service): Promise<void> {
    this.timeline.note(`STOP of ${service.name}`);
    this.services = this.services.filter((each) => each !== service);
    const drained = async (): Promise<void> => {
      while (service.callers.size > 0) await pause(200);
    };
    const closed = inside(service, () => service.host.close(drained));
    await Promise.race([
      closed.catch((error: unknown) => void service.thrown.push(error)),
      pause(STOPPING_MS),
    ]);
    if (service.isGone) return;
    service.isGone = true;
    for (const fail of service.callers) fail();
    this.dead.push(service);
    this.database.cut((session) => session.actor === service);
  }

  async close(): Promise<void> {
    for (const service of this.services.slice()) this.crash(service);
    await this.database.close();
    giveBackClients(this.timeline);
  }

  #endpoint(index: number): Server {
    return ({ body }) => {
      let answer: unknown;
      try {
        answer = respond(this.chain, index, JSON.parse(body));
      } catch (error) {
        if (error instanceof EndpointSilent) return undefined;
        if (error instanceof EndpointDown)
          throw Object.assign(new Error(error.message), { code: "ECONNRESET" });
        throw error;
      }
      const awaited = (answer as { result?: unknown }).result;
      if (!(awaited instanceof AwaitedReceipt)) {
        const response = { status: 200, body: JSON.stringify(answer) };
        const delayMs = this.delaysMs.get(index);
        if (delayMs === undefined) return response;
        return new Promise((resolve) => {
          this.timeline.after(delayMs, undefined, "slow response", () => resolve(response));
        });
      }
      return new Promise((resolve) => {
        const found = (receipt: unknown): void =>
          resolve({
            status: 200,
            body: JSON.stringify({ ...(answer as object), result: receipt }),
          });
        if (awaited.receipt) found(awaited.receipt);
        else awaited.onReceipt = found;
      });
    };
  }

  #planBlock(): void {
    this.timeline.after(this.#pauseOf(2_000), undefined, "block", () => {
      if (this.isMining) {
        const block = this.chain.mine(this.mining);
        this.sales.note(block);
        if (block.mined.length > 0) {
          this.happened += 1;
          this.timeline.note(`block ${block.number} with ${block.mined.length} transactions`);
        }
      }
      this.#planBlock();
    });
  }

  /** The job that closes channels, more often than each minute: a world that waits for it costs as much as any. */
  #planClosing(): void {
    this.timeline.after(this.#pauseOf(CLOSING_MS), undefined, "closing", () => {
      const service = this.sales.isClosing ? this.anyService() : undefined;
      if (service) inside(service, () => void service.runTask("close-channels"));
      this.#planClosing();
    });
  }

  /** The scheduled jobs of every minute, by one of the processes. */
  #planTasks(): void {
    this.timeline.after(this.#pauseOf(60_000), undefined, "minute", () => {
      const service = this.anyService();
      if (service)
        for (const [name, { cron }] of service.tasks)
          if (cron === "* * * * *") inside(service, () => void service.runTask(name));
      this.#planTasks();
    });
  }
}

function configOf(url: string, lanes: number): Config {
  const config = loadConfig({
    PURSER_MODE: "production",
    FACILITATOR_OPEN: "true",
    PUBLIC_URL: "http://localhost:4020",
    DATABASE_URL: url,
    [`RPC_URL_${CHAIN_ID}`]: ENDPOINTS.join(","),
    [`NATIVE_PRICE_${CHAIN_ID}`]: String(NATIVE_PRICE),
    NETWORKS: `eip155:${CHAIN_ID}`,
    CHANNEL_KEYS: CHANNEL_KEY,
    RELAYER_PRIVATE_KEYS: RELAYER_KEYS.slice(0, lanes).join(","),
    MASTER_KEYS: `simulation:${MASTER_KEY}`,
    WORKERS: "1",
  });
  Object.assign(config.timings, TIMINGS);
  return config;
}

/** The addresses of the relayers, in lower case. */
export const RELAYERS: ReadonlySet<Hex> = new Set(
  RELAYER_KEYS.map((key) => privateKeyToAddress(key).toLowerCase() as Hex),
);

export const CHANNEL_ACCOUNT = privateKeyToAddress(CHANNEL_KEY).toLowerCase() as Hex;

export const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => void setTimeout(resolve, ms));

const NO_ANSWER: Lost = { status: 0, body: { code: "no process" } };
export const isOutcome = ({ status, body }: Answer | Lost): boolean =>
  status !== 0 && !COME_AGAIN.has(wordOf(body["code"])) && !BUSY.has(wordOf(body["code"]));
/** Nothing was reserved, or nothing signed. */
const BUSY = new Set(["agent_busy", "keys_unavailable"]);
