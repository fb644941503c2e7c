/**
 * Runs contract calls on a state without changing it: storage writes, logs and uses of authorizations are collected,
 * and a call that fails takes back its own. Gas is counted by the EVM's prices for storage, logs, calls and signatures;
 * what the code itself computes is a constant for each function.
 */
import type { Hex } from "viem";
import type { Value } from "./state.ts";

export interface Log {
  address: Hex;
  topics: Hex[];
  data: Hex;
}

/** What the contracts did, in words, for invariants. */
export type Effect =
  | { kind: "used"; asset: Hex; from: Hex; to: Hex; value: bigint; nonce: string }
  | { kind: "canceled"; asset: Hex; from: Hex; nonce: string }
  | { kind: "approved"; asset: Hex; from: Hex; to: Hex; value: bigint }
  | { kind: "transfer"; asset: Hex; from: Hex; to: Hex; value: bigint }
  | {
      kind: "channel";
      what: "deposited" | "claimed" | "refunded" | "begun" | "withdrawn";
      id: Hex;
      amount: bigint;
    };

/** A failure of a call that takes back what the call did. `data` is hexadecimal, without 0x. */
export class Revert extends Error {
  override name = "Revert";
  readonly data: string;
  constructor(data: string) {
    super("reverted");
    this.data = data;
  }
}

export class OutOfGas extends Error {
  override name = "OutOfGas";
}

export interface BlockContext {
  chainId: number;
  number: number;
  timestampSeconds: number;
}

export interface CallResult {
  success: boolean;
  /** Hexadecimal, without 0x. */
  output: string;
  gasUsed: number;
  isOutOfGas: boolean;
}

/** Runs one function of a contract. Returns its output; throws Revert or OutOfGas. */
export type Contract = (frame: Frame) => string;

export const GAS = {
  coldSlot: 2_100,
  coldAccount: 2_600,
  warm: 100,
  setSlot: 20_000,
  resetSlot: 2_900,
  log: 375,
  logTopic: 375,
  logByte: 8,
  recover: 3_200,
  clearRefund: 4_800,
} as const;

interface Mark {
  journal: number;
  logs: number;
  effects: number;
  refund: number;
  warmed: number;
}

export class Execution {
  readonly block: BlockContext;
  readonly logs: Log[] = [];
  readonly effects: Effect[] = [];
  /** Set for an endpoint that denies uses of authorizations. */
  deniesUses = false;
  refund = 0;
  /** The value before the transaction. */
  readonly original: (key: string) => Value | undefined;
  readonly #contractOf: (code: string) => Contract | undefined;
  readonly #written = new Map<string, Value | undefined>();
  /** What was there before each write, so that a call that fails can take back its own. */
  readonly #journal: [key: string, before: Value | undefined, wasWritten: boolean][] = [];
  readonly #warm = new Set<string>();
  readonly #warmed: string[] = [];

  constructor(
    original: (key: string) => Value | undefined,
    block: BlockContext,
    contractOf: (code: string) => Contract | undefined,
  ) {
    this.original = original;
    this.block = block;
    this.#contractOf = contractOf;
  }

  read(key: string): Value | undefined {
    return this.#written.has(key) ? this.#written.get(key) : this.original(key);
  }

  number(key: string): bigint {
    return (this.read(key) as bigint | undefined) ?? 0n;
  }

  write(key: string, value: Value | undefined): void {
    this.#journal.push([key, this.#written.get(key), this.#written.has(key)]);
    this.#written.set(key, value);
  }

  /** Whether this transaction has not used it before. From now on it has. */
  isFirstUse(key: string): boolean {
    if (this.#warm.has(key)) return false;
    this.#warm.add(key);
    this.#warmed.push(key);
    return true;
  }

  codeOf(address: string): string | undefined {
    return this.read(`code ${address}`) as string | undefined;
  }

  /** A call from outside, or from a contract. */
  call(args: {
    caller: string;
    to: string;
    input: string;
    gas: number;
    value?: bigint;
  }): CallResult {
    const { caller, to, gas, value = 0n } = args;
    const mark = this.#mark();
    const frame = new Frame(this, args);
    try {
      if (value > 0n && !this.#moveValue(caller, to, value)) throw new Revert("");
      const code = this.codeOf(to);
      if (code === undefined) return this.#result(frame, "");
      const contract = this.#contractOf(code);
      if (!contract) throw new Revert("");
      return this.#result(frame, contract(frame));
    } catch (error) {
      this.#takeBack(mark);
      if (error instanceof Revert)
        return { success: false, output: error.data, gasUsed: frame.gasUsed, isOutOfGas: false };
      if (error instanceof OutOfGas)
        return { success: false, output: "", gasUsed: gas, isOutOfGas: true };
      throw error;
    }
  }

  /** Everything written so far, in the order of the first write. */
  get writes(): ReadonlyMap<string, Value | undefined> {
    return this.#written;
  }

  #result(frame: Frame, output: string): CallResult {
    return { success: true, output, gasUsed: frame.gasUsed, isOutOfGas: false };
  }

  #moveValue(from: string, to: string, wei: bigint): boolean {
    const balance = this.number(`wei ${from}`);
    if (balance < wei) return false;
    this.write(`wei ${from}`, balance - wei);
    this.write(`wei ${to}`, this.number(`wei ${to}`) + wei);
    return true;
  }

  #mark(): Mark {
    const { logs, effects, refund } = this;
    return {
      journal: this.#journal.length,
      logs: logs.length,
      effects: effects.length,
      refund,
      warmed: this.#warmed.length,
    };
  }

  #takeBack(mark: Mark): void {
    while (this.#journal.length > mark.journal) {
      const [key, before, wasWritten] = this.#journal.pop() as [string, Value | undefined, boolean];
      if (wasWritten) this.#written.set(key, before);
      else this.#written.delete(key);
    }
    for (const key of this.#warmed.splice(mark.warmed)) this.#warm.delete(key);
    this.logs.length = mark.logs;
    this.effects.length = mark.effects;
    this.refund = mark.refund;
  }
}

/** One call of a contract: who calls it with what, and its gas. */
export class Frame {
  readonly run: Execution;
  readonly caller: string;
  readonly self: Hex;
  readonly value: bigint;
  readonly selector: string;
  /** After the selector: hexadecimal, without 0x. */
  readonly args: string;
  readonly #gas: number;
  #left: number;

  constructor(
    run: Execution,
    call: { caller: string; to: string; input: string; gas: number; value?: bigint },
  ) {
    this.run = run;
    this.caller = call.caller;
    this.self = call.to as Hex;
    this.value = call.value ?? 0n;
    this.selector = call.input.slice(0, 8);
    this.args = call.input.slice(8);
    this.#gas = call.gas;
    this.#left = call.gas;
  }

  get gasUsed(): number {
    return this.#gas - this.#left;
  }

  get gasLeft(): number {
    return this.#left;
  }

  charge(gas: number): void {
    this.#left -= gas;
    if (this.#left < 0) throw new OutOfGas("out of gas");
  }

  /** Several entries may share one slot of the real storage. */
  load(key: string, slot = key): Value | undefined {
    this.charge(this.run.isFirstUse(slot) ? GAS.coldSlot : GAS.warm);
    return this.run.read(key);
  }

  loadNumber(key: string, slot = key): bigint {
    return (this.load(key, slot) as bigint | undefined) ?? 0n;
  }

  /** EIP-2200, EIP-2929 and EIP-3529. An entry that shares its slot with another one that is set resets it. */
  store(key: string, value: bigint, slot = key): void {
    const { run } = this;
    if (run.isFirstUse(slot)) this.charge(GAS.coldSlot);
    const now = run.number(key);
    const original = run.original(key);
    const before = typeof original === "bigint" ? original : 0n;
    const isShared = slot !== key && Boolean(run.original(slot));
    const wasEmpty = before === 0n && !isShared;
    if (value !== now && now === before) {
      this.charge(wasEmpty ? GAS.setSlot : GAS.resetSlot);
      if (value === 0n && !isShared) run.refund += GAS.clearRefund;
    } else {
      this.charge(GAS.warm);
      if (value !== now && !wasEmpty && !isShared) {
        if (now === 0n) run.refund -= GAS.clearRefund;
        if (value === 0n) run.refund += GAS.clearRefund;
      }
      if (value !== now && value === before)
        run.refund += (wasEmpty ? GAS.setSlot : GAS.resetSlot) - GAS.warm;
    }
    run.write(key, value);
  }

  hasCode(address: string): boolean {
    this.charge(this.run.isFirstUse(`account ${address}`) ? GAS.coldAccount : GAS.warm);
    return this.run.codeOf(address) !== undefined;
  }

  log(topics: Hex[], data: string): void {
    this.charge(GAS.log + GAS.logTopic * topics.length + (GAS.logByte * data.length) / 2);
    this.run.logs.push({ address: this.self, topics, data: `0x${data}` });
  }

  /** With at most `gas`, and never the last 64th of what is left. */
  call(to: string, input: string, gas = Number.POSITIVE_INFINITY): CallResult {
    this.charge(this.run.isFirstUse(`account ${to}`) ? GAS.coldAccount : GAS.warm);
    const available = this.#left - Math.floor(this.#left / 64);
    const result = this.run.call({ caller: this.self, to, input, gas: Math.min(gas, available) });
    this.charge(result.gasUsed);
    return result;
  }
}
