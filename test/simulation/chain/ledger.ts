/** The canonical chain: its blocks, its state at every block, and the execution of transactions and calls. */
import type { Hex } from "viem";
import {
  Execution,
  type BlockContext,
  type CallResult,
  type Contract,
  type Effect,
} from "./execution.ts";
import { hash } from "./signatures.ts";
import { State, type Value } from "./state.ts";
import { codeSizes } from "./relays.ts";
import { intrinsicGas, type Transaction } from "./transactions.ts";

export interface RpcLog {
  address: Hex;
  topics: Hex[];
  data: Hex;
  blockNumber: Hex;
  blockHash: Hex;
  transactionHash: Hex;
  transactionIndex: Hex;
  logIndex: Hex;
  removed: false;
}

export interface RpcReceipt {
  transactionHash: Hex;
  transactionIndex: Hex;
  blockHash: Hex;
  blockNumber: Hex;
  from: Hex;
  to: Hex | null;
  contractAddress: null;
  cumulativeGasUsed: Hex;
  gasUsed: Hex;
  effectiveGasPrice: Hex;
  logs: RpcLog[];
  logsBloom: Hex;
  status: Hex;
  type: Hex;
}

/** What one transaction did. */
export interface Mined {
  transaction: Transaction;
  receipt: RpcReceipt;
  effects: Effect[];
  feeWei: bigint;
}

export interface Block {
  number: number;
  hash: Hex;
  parentHash: Hex;
  timestampSeconds: number;
  baseFeeWei: bigint;
  gasLimit: number;
  gasUsed: number;
  mined: Mined[];
  logs: RpcLog[];
}

/** Blocks and their states as a node has them. */
export interface Branch {
  readonly blocks: readonly Block[];
  read(key: string, block: number): Value | undefined;
  find(txHash: Hex): { mined: Mined; block: Block } | undefined;
  blockByHash(hash: Hex): Block | undefined;
}

export interface Call {
  from: Hex;
  /** Undefined: a contract creation. */
  to: Hex | undefined;
  input: Hex;
  gas: number;
  value: bigint;
}

export const quantity = (value: bigint | number): Hex => `0x${value.toString(16)}`;
const NO_BLOOM: Hex = `0x${"0".repeat(512)}`;
const NO_HASH: Hex = `0x${"0".repeat(64)}`;

export class Ledger implements Branch {
  readonly chainId: number;
  readonly state = new State();
  readonly blocks: Block[] = [];
  /** Contracts by their code. */
  readonly contracts = new Map<string, Contract>();
  readonly #minedByHash = new Map<Hex, { mined: Mined; block: Block }>();
  readonly #byBlockHash = new Map<Hex, Block>();
  /** Makes the blocks that replace others different from them. */
  #branch = 0;

  constructor(
    chainId: number,
    first: { timestampSeconds: number; baseFeeWei: bigint; gasLimit: number },
  ) {
    this.chainId = chainId;
    this.#append({ ...first, mined: [] });
  }

  get head(): Block {
    const head = this.blocks.at(-1);
    if (!head) throw new Error("the chain has no block");
    return head;
  }

  find(txHash: Hex): { mined: Mined; block: Block } | undefined {
    return this.#minedByHash.get(txHash);
  }

  blockByHash(hash: Hex): Block | undefined {
    return this.#byBlockHash.get(hash);
  }

  read(key: string, block = this.head.number): Value | undefined {
    return this.state.read(key, block);
  }

  number(key: string, block = this.head.number): bigint {
    return (this.read(key, block) as bigint | undefined) ?? 0n;
  }

  nonceOf(account: Hex, block = this.head.number): number {
    return Number(this.number(`nonce ${account}`, block));
  }

  /** Makes one block of those of the transactions, in this order, that may be in it. */
  mine(
    next: () => Transaction | undefined,
    block: { timestampSeconds: number; baseFeeWei: bigint; gasLimit: number },
  ): Block {
    const number = this.head.number + 1;
    const mined: Mined[] = [];
    const context = { chainId: this.chainId, number, timestampSeconds: block.timestampSeconds };
    let left = block.gasLimit;
    for (let transaction = next(); transaction; transaction = next()) {
      // One that is left out leaves out those behind it, too.
      if (transaction.nonce !== this.nonceOf(transaction.from, number)) continue;
      if (transaction.gas > left || !this.#canPay(transaction, number)) continue;
      const done = this.#executeTransaction(transaction, context, block.baseFeeWei);
      left -= done.gasUsed;
      mined.push(done.mined);
    }
    return this.#append({ ...block, mined });
  }

  /** Removes the newest block, and returns it and what it wrote. */
  undo(): Removed {
    const block = this.blocks.pop();
    if (!block || block.number === 0) throw new Error("the first block stays");
    const writes = this.state.undo(block.number);
    this.#byBlockHash.delete(block.hash);
    for (const mined of block.mined) {
      this.#minedByHash.delete(mined.transaction.hash);
    }
    this.#branch += 1;
    return { block, writes };
  }

  /** A call at the end of a block. Nothing is changed. Several calls follow on one another in one execution. */
  execution(block: Block, branch: Branch = this): Execution {
    const { number, timestampSeconds } = block;
    const context = { chainId: this.chainId, number, timestampSeconds };
    return this.#run((key) => branch.read(key, number), context);
  }

  /** With the gas of a transaction: what it costs at all, and then the call. */
  call(run: Execution, call: Call): CallResult {
    const to = call.to ?? null;
    const { gas: fixed, floor } = intrinsicGas({ input: call.input, to });
    const gas = call.gas - fixed;
    const { from: caller, value } = call;
    const input = call.input.slice(2);
    if (to === null) {
      const output = codeSizes(run, input);
      const gasUsed = fixed + 200 * (output ?? "").length;
      return { success: output !== undefined, output: output ?? "", gasUsed, isOutOfGas: false };
    }
    run.isFirstUse(`account ${caller}`);
    run.isFirstUse(`account ${to}`);
    const result = run.call({ caller, to, input, gas, value });
    const used = result.gasUsed + fixed;
    return {
      ...result,
      gasUsed: Math.max(used - Math.min(run.refund, Math.floor(used / 5)), floor),
    };
  }

  #run(read: (key: string) => Value | undefined, context: BlockContext): Execution {
    return new Execution(read, context, (code) => this.contracts.get(code));
  }

  #canPay(transaction: Transaction, number: number): boolean {
    const cost = BigInt(transaction.gas) * transaction.maxFeeWei + transaction.value;
    return this.number(`wei ${transaction.from}`, number) >= cost;
  }

  #executeTransaction(
    transaction: Transaction,
    context: BlockContext,
    baseFeeWei: bigint,
  ): { mined: Mined; gasUsed: number } {
    const { from, nonce, gas, maxFeeWei, priorityFeeWei } = transaction;
    const { number } = context;
    const offered = baseFeeWei + priorityFeeWei;
    const price = offered < maxFeeWei ? offered : maxFeeWei;
    const run = this.#run((key) => this.read(key, number), context);
    // The fee is taken first and what is left of it is returned, so the call cannot spend it.
    const balance = this.number(`wei ${from}`, number);
    run.write(`wei ${from}`, balance - BigInt(gas) * price);
    run.write(`nonce ${from}`, BigInt(nonce + 1));
    const { to, input, value } = transaction;
    const result = this.call(run, { from, to: to ?? undefined, input, gas, value });
    const feeWei = BigInt(result.gasUsed) * price;
    const left = BigInt(gas) * price - feeWei;
    run.write(`wei ${from}`, run.number(`wei ${from}`) + left);
    for (const [key, changed] of run.writes) this.state.write(key, changed, number);
    const receipt: RpcReceipt = {
      transactionHash: transaction.hash,
      transactionIndex: "0x0",
      blockHash: NO_HASH,
      blockNumber: quantity(number),
      from,
      to,
      contractAddress: null,
      cumulativeGasUsed: "0x0",
      gasUsed: quantity(result.gasUsed),
      effectiveGasPrice: quantity(price),
      logs: run.logs.map((log) => ({ ...log, ...NO_PLACE })),
      logsBloom: NO_BLOOM,
      status: result.success ? "0x1" : "0x0",
      type: quantity(transaction.type),
    };
    return {
      mined: { transaction, receipt, effects: run.effects, feeWei },
      gasUsed: result.gasUsed,
    };
  }

  #append(given: {
    timestampSeconds: number;
    baseFeeWei: bigint;
    gasLimit: number;
    mined: Mined[];
  }): Block {
    const { mined, timestampSeconds } = given;
    const parent = this.blocks.at(-1);
    const number = (parent?.number ?? -1) + 1;
    const parentHash = parent?.hash ?? NO_HASH;
    const words = [this.chainId, number, timestampSeconds, this.#branch].map((value) =>
      value.toString(16).padStart(64, "0"),
    );
    const hashes = mined.map(({ transaction }) => transaction.hash.slice(2));
    const blockHash: Hex = `0x${hash(parentHash.slice(2) + words.join("") + hashes.join(""))}`;
    const logs: RpcLog[] = [];
    let gasUsed = 0;
    for (const [index, { receipt }] of mined.entries()) {
      gasUsed += Number(receipt.gasUsed);
      receipt.blockHash = blockHash;
      receipt.transactionIndex = quantity(index);
      receipt.cumulativeGasUsed = quantity(gasUsed);
      for (const log of receipt.logs) {
        log.blockNumber = receipt.blockNumber;
        log.blockHash = blockHash;
        log.transactionHash = receipt.transactionHash;
        log.transactionIndex = receipt.transactionIndex;
        log.logIndex = quantity(logs.length);
        logs.push(log);
      }
    }
    const block: Block = { ...given, number, hash: blockHash, parentHash, gasUsed, logs };
    this.blocks.push(block);
    this.#byBlockHash.set(blockHash, block);
    for (const each of mined) this.#minedByHash.set(each.transaction.hash, { mined: each, block });
    return block;
  }
}

interface Removed {
  block: Block;
  writes: ReadonlyMap<string, Value | undefined>;
}

/**
 * The chain as it was before a reorganisation, for a node that does not know of it. A later and deeper one changes what
 * it has in common with the chain.
 */
export class RemovedBranch implements Branch {
  readonly blocks: readonly Block[];
  readonly #ledger: Ledger;
  readonly #removed: readonly Removed[];
  readonly #base: number;

  /** Made while the ledger ends with the last common block. */
  constructor(ledger: Ledger, removed: readonly Removed[]) {
    this.#ledger = ledger;
    this.#removed = removed;
    this.#base = ledger.head.number;
    this.blocks = [...ledger.blocks, ...removed.map(({ block }) => block)];
  }

  read(key: string, block: number): Value | undefined {
    for (let number = block; number > this.#base; number -= 1) {
      const writes = this.#removed[number - this.#base - 1]?.writes;
      if (writes?.has(key) === true) return writes.get(key);
    }
    return this.#ledger.read(key, Math.min(block, this.#base));
  }

  find(txHash: Hex): { mined: Mined; block: Block } | undefined {
    for (const { block } of this.#removed)
      for (const mined of block.mined)
        if (mined.transaction.hash === txHash) return { mined, block };
    const found = this.#ledger.find(txHash);
    return found && found.block.number <= this.#base ? found : undefined;
  }

  blockByHash(hash: Hex): Block | undefined {
    return this.blocks.find((block) => block.hash === hash);
  }
}

const NO_PLACE = {
  blockNumber: "0x0",
  blockHash: NO_HASH,
  transactionHash: NO_HASH,
  transactionIndex: "0x0",
  logIndex: "0x0",
  removed: false,
} as const;
