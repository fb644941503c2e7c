// Virtual time: one queue of events for a whole world. Code inside a simulated process gets its timers, its dates and
// its random bytes from here; everything else keeps the real ones.
import { AsyncLocalStorage } from "node:async_hooks";
import crypto from "node:crypto";
import { syncBuiltinESMExports } from "node:module";
import timers from "node:timers/promises";
import type { Random } from "../helpers/random.ts";

/** Something that runs code in a world: a service process, or a client of one. */
export interface Actor {
  readonly name: string;
  readonly world: Timeline;
  /** Its events vanish when it is gone. */
  isGone: boolean;
  /** Until then nothing of it runs, like in a process that the machine has suspended. */
  frozenUntilMs: number;
  /** The difference of its clock to the true time. */
  skewMs: number;
}

export interface Event {
  atMs: number;
  /** Events of the same moment run in the order in which they were planned. */
  order: number;
  actor: Actor | undefined;
  label: string;
  run: () => void;
  isCanceled: boolean;
}

const real = {
  setTimeout: globalThis.setTimeout,
  setInterval: globalThis.setInterval,
  clearTimeout: globalThis.clearTimeout,
  setImmediate: globalThis.setImmediate,
  delay: timers.setTimeout,
  Date: globalThis.Date,
  now: performance.now.bind(performance),
  abortAfter: AbortSignal.timeout.bind(AbortSignal),
  randomFillSync: crypto.randomFillSync,
};
export { real };

const running = new AsyncLocalStorage<Actor>();
export const currentActor = (): Actor | undefined => running.getStore();
/** For what belongs to the simulation itself, such as a real connection to Postgres. */
export const outside = <T>(work: () => T): T => running.exit(work);
export const inside = <T>(actor: Actor, work: () => T): T => running.run(actor, work);

/** A call of a process over its boundary: a statement or a request, at the moment before or after its effect. */
export interface Step {
  actor: Actor;
  /** The statement, or the body of the request. */
  text: string;
  moment: "before" | "after";
  /** Loses the connection: the response never arrives. */
  cut: () => void;
}

/** The events of a world in the order of their virtual time. */
export class Timeline {
  nowMs: number;
  readonly startMs: number;
  readonly random: Random;
  /** What happened, one line for each event. */
  readonly trace: string[] = [];
  /** Called before each event. */
  readonly watchers = new Set<(event: Event) => void>();
  /** Faults look here for the moment that they wait for. */
  readonly stepWatchers = new Set<(step: Step) => void>();
  /** Work outside of the world that has begun and not ended, such as a statement in Postgres. */
  settleOutside: () => Promise<void> = () => Promise.resolve();
  events = 0;
  readonly #heap: Event[] = [];
  #turns = 0;
  #planned = 0;

  constructor(random: Random, startMs: number) {
    this.random = random;
    this.startMs = startMs;
    this.nowMs = startMs;
  }

  at(atMs: number, actor: Actor | undefined, label: string, run: () => void): Event {
    const order = (this.#planned += 1);
    const event = { atMs: Math.max(atMs, this.nowMs), order, actor, label, run, isCanceled: false };
    push(this.#heap, event);
    return event;
  }

  after(ms: number, actor: Actor | undefined, label: string, run: () => void): Event {
    return this.at(this.nowMs + ms, actor, label, run);
  }

  atStep(step: Step): void {
    for (const watch of this.stepWatchers) watch(step);
  }

  note(text: string): void {
    this.trace.push(`${((this.nowMs - this.startMs) / 1_000).toFixed(4).padStart(10)}  ${text}`);
  }

  /** Runs the next event and everything that follows from it without waiting. False if there is none before `untilMs`. */
  async step(untilMs = Number.POSITIVE_INFINITY): Promise<boolean> {
    for (;;) {
      const next = this.#heap[0];
      if (!next || next.atMs > untilMs) {
        this.nowMs = Math.max(this.nowMs, Number.isFinite(untilMs) ? untilMs : 0);
        return false;
      }
      pop(this.#heap);
      if (next.isCanceled || next.actor?.isGone) continue;
      if (next.actor && next.actor.frozenUntilMs > next.atMs) {
        next.atMs = next.actor.frozenUntilMs;
        push(this.#heap, next);
        continue;
      }
      this.nowMs = Math.max(this.nowMs, next.atMs);
      this.events += 1;
      for (const watch of this.watchers) watch(next);
      // A watcher may have killed its process.
      if (next.actor?.isGone) continue;
      if (next.actor) running.run(next.actor, next.run);
      else next.run();
      await this.settle();
      return true;
    }
  }

  /** Called by everything that starts a turn of its own: a promise chain is followed to its end. */
  busy(): void {
    this.#turns += 1;
  }

  async settle(): Promise<void> {
    for (;;) {
      const before = this.#turns;
      await turn();
      await this.settleOutside();
      if (this.#turns === before) return;
    }
  }

  async runUntil(untilMs: number): Promise<void> {
    while (await this.step(untilMs));
  }
}

const turn = (): Promise<void> => new Promise((resolve) => void real.setImmediate(resolve));

const isBefore = (a: Event, b: Event): boolean =>
  a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);

function push(heap: Event[], event: Event): void {
  let at = heap.push(event) - 1;
  while (at > 0) {
    const parent = (at - 1) >> 1;
    if (!isBefore(event, heap[parent] as Event)) break;
    heap[at] = heap[parent] as Event;
    at = parent;
  }
  heap[at] = event;
}

function pop(heap: Event[]): void {
  const last = heap.pop();
  if (!last || heap.length === 0) return;
  let at = 0;
  for (;;) {
    let child = 2 * at + 1;
    if (child >= heap.length) break;
    if (child + 1 < heap.length && isBefore(heap[child + 1] as Event, heap[child] as Event))
      child += 1;
    if (!isBefore(heap[child] as Event, last)) break;
    heap[at] = heap[child] as Event;
    at = child;
  }
  heap[at] = last;
}

/** What `setTimeout` returns in a simulated process. */
class VirtualTimer {
  readonly #actor: Actor;
  readonly #everyMs: number | undefined;
  readonly #ms: number;
  readonly #run: () => void;
  #event: Event;

  constructor(actor: Actor, ms: number, run: () => void, isRepeated: boolean) {
    this.#actor = actor;
    this.#ms = Math.max(Number.isFinite(ms) ? ms : 1, 1);
    this.#everyMs = isRepeated ? this.#ms : undefined;
    this.#run = run;
    this.#event = this.#plan();
  }

  #plan(): Event {
    return this.#actor.world.after(this.#ms, this.#actor, "timer", () => {
      if (this.#everyMs !== undefined) this.#event = this.#plan();
      this.#run();
    });
  }

  cancel(): void {
    this.#event.isCanceled = true;
  }
  close(): this {
    this.cancel();
    return this;
  }
  refresh(): this {
    this.cancel();
    this.#event = this.#plan();
    return this;
  }
  ref(): this {
    return this;
  }
  unref(): this {
    return this;
  }
  hasRef(): boolean {
    return true;
  }
  [Symbol.dispose](): void {
    this.cancel();
  }
}

const nowOf = (actor: Actor): number => Math.floor(actor.world.nowMs + actor.skewMs);

/** Replaces the timers, the dates and the random bytes of this Node process; outside of a world they work as before. */
export function installTime(): void {
  const schedule =
    (isRepeated: boolean, otherwise: (...args: never[]) => unknown) =>
    (run: (...args: unknown[]) => void, ms = 0, ...args: unknown[]): unknown => {
      const actor = currentActor();
      return actor
        ? new VirtualTimer(actor, ms, () => run(...args), isRepeated)
        : (otherwise as (...args: unknown[]) => unknown)(run, ms, ...args);
    };
  const cancel = (timer: unknown): void =>
    timer instanceof VirtualTimer ? timer.cancel() : real.clearTimeout(timer as NodeJS.Timeout);
  const immediate = (run: (...args: unknown[]) => void, ...args: unknown[]): NodeJS.Immediate => {
    currentActor()?.world.busy();
    return real.setImmediate(run, ...args);
  };
  Object.assign(globalThis, {
    setTimeout: schedule(false, real.setTimeout as never),
    setInterval: schedule(true, real.setInterval as never),
    clearTimeout: cancel,
    clearInterval: cancel,
    setImmediate: immediate,
    Date: class extends real.Date {
      constructor(...args: unknown[]) {
        const actor = args.length === 0 ? currentActor() : undefined;
        super(...((actor ? [nowOf(actor)] : args) as [number]));
      }
      static override now(): number {
        const actor = currentActor();
        return actor ? nowOf(actor) : real.Date.now();
      }
    },
  });
  performance.now = () => {
    const world = currentActor()?.world;
    return world ? 1_000_000 + world.nowMs - world.startMs : real.now();
  };
  AbortSignal.timeout = (ms) => {
    if (!currentActor()) return real.abortAfter(ms);
    const controller = new AbortController();
    setTimeout(() => controller.abort(new DOMException("It took too long", "TimeoutError")), ms);
    return controller.signal;
  };
  Object.assign(timers, { setTimeout: delay });
  Object.assign(crypto, {
    randomBytes: (size: number) => crypto.randomFillSync(Buffer.alloc(size)),
    randomFillSync: fill,
    randomUUID: () => {
      const hex = crypto.randomBytes(16).toString("hex");
      return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20)}`;
    },
  });
  Object.assign(crypto.webcrypto, { getRandomValues: fill });
  syncBuiltinESMExports();
}

function delay<T>(ms?: number, value?: T, options: { signal?: AbortSignal } = {}): Promise<T> {
  if (!currentActor()) return real.delay<T>(ms, value, options);
  const { signal } = options;
  return new Promise<T>((resolve, reject) => {
    const stop = (): void => {
      clearTimeout(timer);
      reject(new DOMException("The operation was aborted", "AbortError"));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve(value as T);
    }, ms);
    if (signal?.aborted === true) stop();
    else signal?.addEventListener("abort", stop);
  });
}

function fill<T extends NodeJS.ArrayBufferView>(bytes: T): T {
  const world = currentActor()?.world;
  if (!world) return real.randomFillSync(bytes);
  const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at < view.length; at += 1) view[at] = Math.floor(world.random.next() * 256);
  return bytes;
}
