// The database of a world: the real Postgres, with the world's time. A statement takes effect at one moment of the world
// and its response arrives at a later one; between the two a process or a connection may be lost. Statements take effect
// one after the other, so the order of the events decides everything.
import { Client, DatabaseError, Query, types as builtinTypes } from "pg";
import { outside, real, type Actor, type Event, type Timeline } from "./time.ts";

export interface Statement {
  text: string;
  values?: unknown[];
  name?: string;
  rowMode?: string;
  types?: unknown;
}

type Done = (error: Error | null, result?: unknown) => void;

/** What a connection tells its process. */
interface Receiver {
  lost: (error: Error) => void;
  notify: (channel: string, payload: string) => void;
}

/** A real connection, kept from world to world: a new one costs Postgres more than a whole world. */
interface Backend {
  client: Client;
  pid: number;
  /** Receives what statements announce with pg_notify. */
  onNotify: (channel: string, payload: string) => void;
}

/** The real connections of this Node process, by the settings that they were opened with. */
export class Backends {
  readonly #url: string;
  readonly #free = new Map<string, Backend[]>();
  /** Looks for locks and at rows, puts rows back, and cancels statements. */
  readonly monitor: Client;
  /** Results that are always the same: a connection asks for them when it opens, and to show that it lives. */
  readonly constants = new Map<string, unknown>();

  private constructor(url: string, monitor: Client) {
    this.#url = url;
    this.monitor = monitor;
  }

  static async open(url: string): Promise<Backends> {
    const monitor = new Client({ connectionString: url, options: PLANNED_ONCE });
    await monitor.connect();
    const query = monitor.query.bind(monitor) as (config: object) => Promise<unknown>;
    monitor.query = ((text: string, values?: unknown[]) =>
      query({ name: nameOf({ text }), text, values })) as never;
    return new Backends(url, monitor);
  }

  async take(settings: string): Promise<Backend> {
    const free = this.#free.get(settings)?.pop();
    if (free) return free;
    const options = [settings, ...SETTINGS].join(" ");
    const client = new Client({ connectionString: this.#url, options });
    client.on("error", () => undefined);
    await client.connect();
    await client.query({
      name: CLOCK,
      text: "SELECT set_config('sim.clock', $1, false)",
      values: ["0"],
    });
    const { rows } = await client.query<{ pid: number }>("SELECT pg_backend_pid() AS pid");
    const backend: Backend = { client, pid: rows[0]?.pid ?? 0, onNotify: () => undefined };
    // The simulated pg_notify: see prepareDatabase.
    client.on("notice", ({ hint, message, detail }) => {
      if (hint === CLOCK) backend.onNotify(message ?? "", detail ?? "");
    });
    return backend;
  }

  give(settings: string, backend: Backend): void {
    const free = this.#free.get(settings) ?? [];
    free.push(backend);
    this.#free.set(settings, free);
  }

  async close(): Promise<void> {
    await this.monitor.end();
    for (const { client } of [...this.#free.values()].flat()) await client.end();
  }
}

/** The name of the statement that sets the clock of a connection, and the mark of our notices. */
const CLOCK = "sim.clock";

/** A statement together with the time at which it runs: both are sent at once. */
class TimedQuery extends (Query as unknown as new (config: object, done: Done) => WireQuery) {
  readonly #micros: string;
  #isTimeSet = false;

  constructor(statement: Statement, micros: number, done: Done) {
    super(
      {
        ...statement,
        name: nameOf(statement),
        values: statement.values ?? [],
        queryMode: "extended",
      },
      done,
    );
    this.#micros = String(micros);
  }

  override submit(connection: WireConnection): Error | null {
    connection.stream.cork();
    try {
      connection.bind({ statement: CLOCK, values: [this.#micros] });
      connection.execute({});
      return super.submit(connection);
    } finally {
      connection.stream.uncork();
    }
  }

  override handleDataRow(message: object): void {
    if (this.#isTimeSet) super.handleDataRow(message);
  }

  override handleCommandComplete(message: object, connection: WireConnection): void {
    if (this.#isTimeSet) super.handleCommandComplete(message, connection);
    this.#isTimeSet = true;
  }
}

/** Each text is parsed and planned once for each connection, also where the service gives no name. */
const names = new Map<string, string>();
function nameOf({ name, text }: Statement): string {
  if (name !== undefined) return name;
  const made = names.get(text) ?? `sim.${names.size}`;
  names.set(text, made);
  return made;
}

/** Internals of pg that its types do not contain. */
interface WireConnection {
  stream: { cork(): void; uncork(): void };
  bind(config: { statement: string; values: string[] }): void;
  execute(config: object): void;
}
interface WireQuery {
  submit(connection: WireConnection): Error | null;
  handleDataRow(message: object): void;
  handleCommandComplete(message: object, connection: WireConnection): void;
}

const CONSTANT = /^(SELECT 1|\s*SELECT pg_is_in_recovery\(\) AS standby[^]*)$/;

/** As `databaseNow` reads it. */
const READS_CLOCK = "SELECT clock_timestamp() AS now";

/** Real time after which a statement without a result may be waiting for a lock. */
const LOOK_FOR_LOCKS_MS = 3;
/** The plan of a statement depends on no earlier world. */
const PLANNED_ONCE = "-c plan_cache_mode=force_generic_plan";
const SETTINGS = [
  PLANNED_ONCE,
  // Postgres' own timeouts count real time: here they end in virtual time.
  "-c statement_timeout=0",
  "-c lock_timeout=0",
  "-c idle_in_transaction_session_timeout=0",
  "-c deadlock_timeout=600s",
];

interface Outcome {
  result?: unknown;
  error?: Error;
}

interface Running {
  outcome: Promise<Outcome>;
  done: (outcome: Outcome) => void;
  /** The connections that keep a lock which it waits for. */
  blockers: readonly number[];
}

const databases = new WeakMap<Timeline, Database>();
export function databaseOf({ world }: Actor): Database {
  const database = databases.get(world);
  if (!database) throw new Error("this world has no database");
  return database;
}

export class Database {
  readonly world: Timeline;
  readonly backends: Backends;
  /** New connections are refused, and open ones are lost with their next statement. */
  isDown = false;
  /** No response arrives before this time. */
  silentUntilMs = 0;
  statements = 0;
  readonly #running = new Map<Session, Running>();
  readonly #sessions = new Set<Session>();
  readonly #cleanups = new Set<Promise<void>>();

  constructor(world: Timeline, backends: Backends) {
    this.world = world;
    this.backends = backends;
    databases.set(world, this);
    world.settleOutside = () => this.#settle();
  }

  notify(channel: string, payload: string): void {
    for (const session of this.#sessions) session.notify(channel, payload);
  }

  /** Mostly a fraction of a millisecond, sometimes much more. */
  latencyMs(): number {
    const { random } = this.world;
    const kind = random.next();
    const share = random.next();
    if (kind < 0.95) return 0.05 + share;
    if (kind < 0.997) return 2 + share * 40;
    return 50 + share * 800;
  }

  connect(actor: Actor, options: string, receiver: Receiver): Promise<Session> {
    return new Promise((resolve, reject) => {
      this.world.after(1 + this.latencyMs(), actor, "db: connect", () => {
        if (this.isDown) return reject(refused());
        const session = new Session(this, actor, options, receiver);
        this.#sessions.add(session);
        resolve(session);
      });
    });
  }

  /** Loses the connections that match, as a failed network or server does. */
  cut(isCut: (session: Session) => boolean = () => true): void {
    for (const session of this.#sessions) if (isCut(session)) session.lose();
  }

  /** The statement takes effect now, or as soon as it gets its locks. */
  run(session: Session, work: () => Promise<unknown>, done: (outcome: Outcome) => void): void {
    this.statements += 1;
    const outcome = outside(async (): Promise<Outcome> => {
      try {
        return { result: await work() };
      } catch (error) {
        return { error: error as Error };
      }
    });
    this.#running.set(session, { outcome, done, blockers: [] });
    this.world.busy();
  }

  get micros(): number {
    return Math.floor(this.world.nowMs * 1_000);
  }

  /** Waits until every statement has its result or waits for a lock that another transaction keeps. */
  async #settle(): Promise<void> {
    for (;;) {
      await Promise.all(this.#cleanups);
      const open = [...this.#running].filter(([, { blockers }]) => blockers.length === 0);
      if (open.length === 0) return;
      const [only] = open;
      if (only && !this.#mayWait(only[0])) {
        this.#end(...only, await only[1].outcome);
        continue;
      }
      let isProgress = false;
      for (const [session, running] of open) {
        const outcome = await soon(running.outcome);
        if (!outcome) continue;
        isProgress = true;
        this.#end(session, running, outcome);
      }
      if (!isProgress) await this.#lookForLocks(open);
    }
  }

  #end(session: Session, running: Running, outcome: Outcome): void {
    this.#running.delete(session);
    running.done(outcome);
    this.#mayHaveReleased(session.pid);
  }

  /** Whether another connection may keep a lock. */
  #mayWait(session: Session): boolean {
    if (this.#running.size > 1) return true;
    for (const other of this.#sessions) if (other !== session && other.isInTransaction) return true;
    return false;
  }

  async #lookForLocks(open: [Session, Running][]): Promise<void> {
    const { rows } = await this.backends.monitor.query<{ pid: number; blockers: number[] }>(
      `SELECT pid, pg_blocking_pids(pid) AS blockers FROM unnest($1::int[]) AS pid`,
      [open.map(([session]) => session.pid)],
    );
    const blockersOf = new Map(rows.map(({ pid, blockers }) => [pid, blockers]));
    // One that still runs may be about to release what the others wait for.
    if (rows.some(({ blockers }) => blockers.length === 0)) return;
    for (const [session, running] of open) {
      running.blockers = blockersOf.get(session.pid) ?? [];
      session.noteBlocked();
    }
  }

  /** Those that waited for this connection are looked at again. */
  #mayHaveReleased(pid: number): void {
    for (const running of this.#running.values())
      if (running.blockers.includes(pid)) running.blockers = [];
  }

  /** Ends a statement that waits for a lock; its result is an error. */
  cancel(session: Session): void {
    const running = this.#running.get(session);
    if (!running) return;
    this.#cleanUp(async () => {
      await this.backends.monitor.query("SELECT pg_cancel_backend($1)", [session.pid]);
      running.blockers = [];
    });
  }

  /** The server notices that the connection has ended: its statement is canceled and its transaction rolled back. */
  release(session: Session, backend: Promise<Backend> | undefined): void {
    this.#sessions.delete(session);
    const running = this.#running.get(session);
    this.#running.delete(session);
    if (!backend) return;
    this.#cleanUp(async () => {
      const { client, pid } = await backend;
      if (running) {
        await this.backends.monitor.query("SELECT pg_cancel_backend($1)", [pid]);
        await running.outcome;
      }
      if (running || session.isInTransaction) await client.query("ROLLBACK");
      this.backends.give(session.settings, await backend);
      this.#mayHaveReleased(pid);
    });
  }

  #cleanUp(work: () => Promise<void>): void {
    this.world.busy();
    const cleanup: Promise<void> = outside(work).finally(() => this.#cleanups.delete(cleanup));
    this.#cleanups.add(cleanup);
  }

  /** The end of a world: no connection and no transaction is left. */
  async close(): Promise<void> {
    for (const session of this.#sessions) session.end();
    await this.#settle();
  }
}

/** The result, or undefined if there is none within a moment of real time. */
async function soon(outcome: Promise<Outcome>): Promise<Outcome | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = real.setTimeout(resolve, LOOK_FOR_LOCKS_MS, undefined);
  });
  const first = await Promise.race([outcome, late]);
  real.clearTimeout(timer);
  return first;
}

const refused = (): Error =>
  Object.assign(new Error("connect ECONNREFUSED 127.0.0.1:5432"), {
    code: "ECONNREFUSED",
    syscall: "connect",
    errno: -111,
  });

const fatal = (code: string, message: string): Error => {
  const error = new DatabaseError(message, message.length, "error");
  return Object.assign(error, { code, severity: "FATAL" });
};

const settingOf = (options: string, name: string): number =>
  Number(new RegExp(`-c ${name}=(\\d+)`).exec(options)?.[1] ?? 0);

/** One connection of a simulated process. */
export class Session {
  readonly database: Database;
  readonly actor: Actor;
  readonly settings: string;
  readonly #receiver: Receiver;
  readonly #channels = new Set<string>();
  readonly #lockMs: number;
  readonly #idleMs: number;
  #backend: Promise<Backend> | undefined;
  isInTransaction = false;
  /** What was announced and is not committed yet. */
  #notes: [channel: string, payload: string][] = [];
  #isEnded = false;
  #idle: Event | undefined;
  #lockTimeout: Event | undefined;
  #lockTimedOut = false;
  pid = 0;

  constructor(database: Database, actor: Actor, options: string, receiver: Receiver) {
    this.database = database;
    this.actor = actor;
    this.#receiver = receiver;
    this.#lockMs = settingOf(options, "lock_timeout");
    this.#idleMs = settingOf(options, "idle_in_transaction_session_timeout");
    this.settings = options
      .replaceAll(/-c \w+_timeout=\d+/g, "")
      .replaceAll(/\s+/g, " ")
      .trim();
  }

  run(statement: Statement, done: Done): void {
    if (this.#idle) this.#idle.isCanceled = true;
    const { database } = this;
    const { world } = database;
    const label = `db: ${shortOf(statement)}`;
    // Sent already: it takes effect even if its process is suspended now.
    world.after(database.latencyMs(), undefined, `${this.actor.name} ${label}`, () => {
      if (this.#isEnded || this.actor.isGone) return;
      if (database.isDown) return this.lose();
      const step = {
        actor: this.actor,
        text: statement.name ?? statement.text,
        cut: () => this.lose(),
      };
      world.atStep({ ...step, moment: "before" });
      if (this.#isEnded || this.actor.isGone) return;
      database.run(
        this,
        () => this.#execute(statement),
        (outcome) => {
          if (this.#isEnded) return;
          if (this.#lockTimeout) this.#lockTimeout.isCanceled = true;
          const error = outcome.error && this.#lockTimedOut ? lockTimeout() : outcome.error;
          this.#lockTimedOut = false;
          world.atStep({ ...step, moment: "after" });
          if (this.#isEnded) return;
          const atMs = Math.max(world.nowMs + database.latencyMs(), database.silentUntilMs);
          world.at(atMs, this.actor, `response to ${label}`, () => {
            if (this.#isEnded) return;
            done(error ?? null, outcome.result);
          });
          if (this.isInTransaction) this.#limitIdleness(atMs);
        },
      );
    });
  }

  async #execute(statement: Statement): Promise<unknown> {
    const { text } = statement;
    const listen = /^LISTEN "?(\w+)"?$/.exec(text)?.[1];
    if (listen !== undefined) {
      this.#channels.add(listen);
      return { rows: [], rowCount: null, fields: [], command: "LISTEN" };
    }
    const { backends } = this.database;
    const constant = CONSTANT.test(text);
    const known = constant && backends.constants.get(text);
    if (known) return known;
    if (text === READS_CLOCK && !this.isInTransaction) return this.#readClock(statement);
    this.#backend ??= backends.take(this.settings);
    const backend = await this.#backend;
    const { client } = backend;
    this.pid = backend.pid;
    backend.onNotify = (...note) => void this.#notes.push(note);
    try {
      if (/^\s*BEGIN\b/i.test(text)) return await this.#begin(client, text);
      if (!/^\s*(COMMIT|ROLLBACK)\s*$/i.test(text)) {
        const result = await new Promise((resolve, reject) => {
          const done: Done = (error, found) => (error ? reject(error) : resolve(found));
          client.query(new TimedQuery(statement, this.database.micros, done) as never);
        });
        if (constant) backends.constants.set(text, result);
        return result;
      }
      this.isInTransaction = false;
      const ended = await client.query(text);
      if (ended.command !== "COMMIT") this.#notes = [];
      return ended;
    } catch (error) {
      if (!this.isInTransaction) this.#notes = [];
      throw error;
    } finally {
      // Everybody learns of it when it is committed.
      if (!this.isInTransaction)
        for (const note of this.#notes.splice(0)) this.database.notify(...note);
    }
  }

  /** Without Postgres, whose clock is the world's anyway: it is the most frequent statement of all. */
  #readClock({ rowMode, types }: Statement): object {
    const { micros } = this.database;
    const text = `${new Date(Math.floor(micros / 1_000)).toISOString().slice(0, -1).replace("T", " ")}${String(micros % 1_000).padStart(3, "0")}+00`;
    const parse = (types as typeof builtinTypes | undefined) ?? builtinTypes;
    const now: unknown = parse.getTypeParser(builtinTypes.builtins.TIMESTAMPTZ, "text")(text);
    const fields = [{ name: "now", dataTypeID: builtinTypes.builtins.TIMESTAMPTZ, format: "text" }];
    const rows = [rowMode === "array" ? [now] : { now }];
    return { command: "SELECT", rowCount: 1, rows, fields };
  }

  async #begin(client: Client, text: string): Promise<unknown> {
    const { micros } = this.database;
    this.isInTransaction = true;
    const settings = `set_config('sim.began', '${micros}', true), set_config('${CLOCK}', '${micros}', false)`;
    const [begun] = (await client.query(`${text}; SELECT ${settings}`)) as unknown as unknown[];
    return begun;
  }

  notify(channel: string, payload: string): void {
    const { world } = this.database;
    if (!this.#channels.has(channel) || this.#isEnded) return;
    world.after(this.database.latencyMs(), this.actor, `notified: ${channel}`, () => {
      if (!this.#isEnded) this.#receiver.notify(channel, payload);
    });
  }

  noteBlocked(): void {
    if (this.#lockMs === 0 || (this.#lockTimeout && !this.#lockTimeout.isCanceled)) return;
    this.#lockTimeout = this.database.world.after(
      this.#lockMs,
      undefined,
      "db: lock timeout",
      () => {
        if (this.#lockTimeout?.isCanceled !== false || this.#isEnded) return;
        this.#lockTimedOut = true;
        this.database.cancel(this);
      },
    );
  }

  /** A process that is suspended in a transaction does not keep its locks for ever. */
  #limitIdleness(fromMs: number): void {
    if (this.#idleMs === 0) return;
    const { world } = this.database;
    this.#idle = world.at(fromMs + this.#idleMs, undefined, "db: idle in transaction", () =>
      this.lose(fatal("25P03", "terminating connection due to idle-in-transaction timeout")),
    );
  }

  /** The connection breaks; its process learns of it a little later. */
  lose(error: Error = new Error("Connection terminated unexpectedly")): void {
    if (this.#isEnded) return;
    this.end();
    const { world } = this.database;
    world.after(this.database.latencyMs(), this.actor, "db: connection lost", () =>
      this.#receiver.lost(error),
    );
  }

  end(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    if (this.#idle) this.#idle.isCanceled = true;
    this.database.release(this, this.#backend);
  }
}

const lockTimeout = (): Error => fatal("55P03", "canceling statement due to lock timeout");

const shortOf = ({ name, text }: Statement): string =>
  (name ?? text).replaceAll(/\s+/g, " ").trim().slice(0, 70);
