/**
 * One RPC endpoint: its view of the chain, its own pool, and its answers. Each fault is a field that can be set and
 * unset at any time.
 */
import type { Hex } from "viem";
import type { Block, Branch, Ledger, Mined, RpcLog, RpcReceipt } from "./ledger.ts";
import { quantity } from "./ledger.ts";
import { Pool } from "./pool.ts";
import { EndpointDown, EndpointSilent, revertError, RpcError } from "./rpc-error.ts";
import { intrinsicGas, parseRaw, type Transaction } from "./transactions.ts";

/** A send that waits for its receipt. The endpoint gives it when it has the block. */
export class AwaitedReceipt {
  readonly hash: Hex;
  receipt: RpcReceipt | undefined;
  /** Called once, when the receipt is there. */
  onReceipt: ((receipt: RpcReceipt) => void) | undefined;

  constructor(hash: Hex) {
    this.hash = hash;
  }
}

export interface EndpointDeps {
  ledger: Ledger;
  /** Gives a transaction to the other nodes. */
  spread: (transaction: Transaction) => void;
  blockGasLimit: number;
}

const SAFE_DEPTH = 32;
const FINALIZED_DEPTH = 64;
const DEFAULT_TIP_WEI = 1_000_000_000n;
const ZERO: Hex = `0x${"0".repeat(40)}`;
const NOBODYS_BLOCK: Hex = `0x${"f".repeat(64)}`;

export class Endpoint {
  /** No connection. */
  isDown = false;
  /** It takes the request and never responds. Sent transactions arrive all the same. */
  isSilent = false;
  /** How many of the newest blocks it does not have yet. */
  lagBlocks = 0;
  /** It has stopped at this block. */
  stuckAt: number | undefined;
  /** It stays on the blocks that a reorganisation removes, and gets no other ones. */
  ignoresReorganisations = false;
  /** Every request is answered by this, a rate limit for example. */
  refusesAll: RpcError | undefined;
  /** How it answers transactions that it does not want. */
  refuses: ((transaction: Transaction) => RpcError | undefined) | undefined;
  /** Its transactions reach the other nodes, and theirs reach it. */
  gossips = true;
  /** It accepts transactions and forgets them. */
  dropsSent = false;
  /** It accepts a transaction and then answers with this error, or not at all. */
  failsAfterSend: RpcError | "lost" | undefined;
  /** It accepts no transaction that offers less than the base fee, as some nodes do. */
  refusesLowFees = false;
  hidesReceipts = false;
  hidesTransactions = false;
  /** It still shows the receipts of blocks that a reorganisation removed; everything else is of the new ones. */
  keepsReceipts = false;
  /** It shows receipts of transactions of its pool, of a block that nobody has. */
  inventsReceipts = false;
  hidesLogs = false;
  /** It shows authorizations as unused. */
  deniesUses = false;
  refusesBatches = false;
  /** `eth_sendRawTransactionSync`. */
  hasWaitingSend = true;
  hasSimulate = true;
  hasBlockReceipts = true;
  /** It has no states older than this many blocks. */
  statesKept = Number.POSITIVE_INFINITY;
  tipWei = DEFAULT_TIP_WEI;

  readonly pool = new Pool();
  #removed: Branch | undefined;
  #replaced: Branch | undefined;
  #awaited: AwaitedReceipt[] = [];
  readonly #deps: EndpointDeps;

  constructor(deps: EndpointDeps) {
    this.#deps = deps;
  }

  /** The newest block that it has. */
  get head(): Block {
    const { blocks } = this.#branch;
    const last = blocks.length - 1;
    const newest = Math.min(last - this.lagBlocks, this.stuckAt ?? last);
    return blocks[Math.max(newest, 0)] ?? this.#deps.ledger.head;
  }

  get #branch(): Branch {
    if (!this.ignoresReorganisations) this.#removed = undefined;
    return this.#removed ?? this.#deps.ledger;
  }

  /** The chain was like this until now. */
  reorganised(before: Branch): void {
    if (this.ignoresReorganisations) this.#removed ??= before;
    if (this.keepsReceipts) this.#replaced = before;
  }

  request(method: string, params: readonly unknown[]): unknown {
    if (this.isDown) throw new EndpointDown("connection refused");
    if (this.refusesAll) throw this.refusesAll;
    const answer = this.#answer(method, params);
    if (this.isSilent) throw new EndpointSilent(method);
    return answer;
  }

  /** A new block is there: the pool loses what is in blocks, and waiting sends get their receipts. */
  notice(): void {
    const { number } = this.head;
    this.pool.dropUsed((sender) => this.#nonceOf(sender, number));
    const waiting = this.#awaited;
    // The connections of those who wait are lost.
    if (this.isDown) this.#awaited = [];
    if (this.isDown || waiting.length === 0 || this.isSilent || this.hidesReceipts) return;
    this.#awaited = [];
    for (const awaited of waiting) {
      const found = this.#find(awaited.hash);
      if (!found) this.#awaited.push(awaited);
      else {
        awaited.receipt = found.mined.receipt;
        awaited.onReceipt?.(found.mined.receipt);
      }
    }
  }

  #answer(method: string, params: readonly unknown[]): unknown {
    const { ledger } = this.#deps;
    const account = (): Hex => String(params[0]).toLowerCase() as Hex;
    switch (method) {
      case "eth_chainId":
        return quantity(ledger.chainId);
      case "net_version":
        return String(ledger.chainId);
      case "eth_blockNumber":
        return quantity(this.head.number);
      case "eth_getBlockByNumber":
        return blockJson(this.#blockAt(params[0]), params[1] === true);
      case "eth_getBlockByHash":
        return blockJson(
          this.#shown(this.#branch.blockByHash(params[0] as Hex)),
          params[1] === true,
        );
      case "eth_getBlockReceipts": {
        if (!this.hasBlockReceipts) throw missing(method);
        const block = this.#blockAt(params[0]);
        if (this.hidesReceipts || !block) return null;
        return block.mined.map(({ receipt }) => receipt);
      }
      case "eth_getTransactionReceipt":
        return this.hidesReceipts
          ? null
          : (this.#find(params[0] as Hex)?.mined.receipt ??
              this.#kept(params[0] as Hex) ??
              this.#invented(params[0] as Hex));
      case "eth_getTransactionByHash":
        return this.#transaction(params[0] as Hex);
      case "eth_getLogs":
        return this.#logs(params[0] as LogFilter);
      case "eth_getBalance":
        return quantity(this.#number(`wei ${account()}`, this.#stateAt(params[1]).number));
      case "eth_getCode":
        return this.#branch.read(`code ${account()}`, this.#stateAt(params[1]).number) ?? "0x";
      case "eth_getTransactionCount": {
        const next = this.#nonceOf(account(), this.#stateAt(params[1]).number);
        return quantity(params[1] === "pending" ? this.pool.nonceAfter(account(), next) : next);
      }
      case "eth_call":
        return this.#call(params[0] as CallRequest, params[1]);
      case "eth_estimateGas":
        return this.#estimate(params[0] as CallRequest, params[1]);
      case "eth_simulateV1":
        if (!this.hasSimulate) throw missing(method);
        return this.#simulate(params[0] as SimulateRequest, params[1]);
      case "eth_gasPrice":
        return quantity(this.head.baseFeeWei + this.tipWei);
      case "eth_maxPriorityFeePerGas":
        return quantity(this.tipWei);
      case "eth_sendRawTransaction":
        return this.#send(params[0] as Hex).hash;
      case "eth_sendRawTransactionSync":
        if (!this.hasWaitingSend) throw missing(method);
        return this.#sendAndWait(params[0] as Hex);
      default:
        throw missing(method);
    }
  }

  // --- transactions

  #send(raw: Hex): Transaction {
    const transaction = parseRaw(raw);
    if (!transaction) throw new RpcError(-32000, "rlp: the bytes are no signed transaction");
    this.#check(transaction);
    if (!this.dropsSent) {
      this.pool.offer(transaction);
      if (this.gossips) this.#deps.spread(transaction);
    }
    if (this.failsAfterSend === "lost") throw new EndpointDown("connection lost");
    if (this.failsAfterSend) throw this.failsAfterSend;
    return transaction;
  }

  #sendAndWait(raw: Hex): AwaitedReceipt {
    const awaited = new AwaitedReceipt(this.#send(raw).hash);
    this.#awaited.push(awaited);
    return awaited;
  }

  #check(transaction: Transaction): void {
    const { ledger, blockGasLimit } = this.#deps;
    const { from, nonce, gas, value, maxFeeWei, priorityFeeWei, chainId } = transaction;
    const refusal = this.refuses?.(transaction);
    if (refusal) throw refusal;
    if (chainId !== undefined && chainId !== ledger.chainId)
      throw refused(`invalid chain id for signer: have ${chainId} want ${ledger.chainId}`);
    if (this.pool.get(transaction.hash)) throw refused("already known");
    if (gas > blockGasLimit) throw refused("exceeds block gas limit");
    if (priorityFeeWei > maxFeeWei)
      throw refused("max priority fee per gas higher than max fee per gas");
    const { gas: fixed, floor } = intrinsicGas(transaction);
    if (gas < fixed) throw refused(`intrinsic gas too low: gas ${gas}, minimum needed ${fixed}`);
    if (gas < floor)
      throw refused(
        `insufficient gas for floor data gas cost: gas ${gas}, minimum needed ${floor}`,
      );
    const { number, baseFeeWei } = this.head;
    const next = this.#nonceOf(from, number);
    if (nonce < next) throw refused(`nonce too low: next nonce ${next}, tx nonce ${nonce}`);
    const cost = BigInt(gas) * maxFeeWei + value;
    const balance = this.#number(`wei ${from}`, number);
    if (balance < cost)
      throw refused(
        `insufficient funds for gas * price + value: balance ${balance}, tx cost ${cost}, overshot ${cost - balance}`,
      );
    if (this.refusesLowFees && maxFeeWei < baseFeeWei)
      throw refused("max fee per gas less than block base fee");
    if (!this.pool.outbids(transaction)) throw refused("replacement transaction underpriced");
  }

  #find(hash: Hex): { mined: Mined; block: Block } | undefined {
    const found = this.#branch.find(hash.toLowerCase() as Hex);
    return found && found.block.number <= this.head.number ? found : undefined;
  }

  #kept(hash: Hex): RpcReceipt | undefined {
    return this.keepsReceipts
      ? this.#replaced?.find(hash.toLowerCase() as Hex)?.mined.receipt
      : undefined;
  }

  /** As if its transaction were in a block beside the newest one. */
  #invented(hash: Hex): RpcReceipt | null {
    const pending = this.inventsReceipts ? this.pool.get(hash.toLowerCase() as Hex) : undefined;
    if (!pending) return null;
    const { ledger } = this.#deps;
    const { head } = this;
    const { from, to, input, gas, value } = pending;
    const run = ledger.execution(head, this.#branch);
    const result = ledger.call(run, { from, to: to ?? undefined, input, gas, value });
    const place = {
      blockNumber: quantity(head.number),
      blockHash: NOBODYS_BLOCK,
      transactionHash: hash,
      transactionIndex: quantity(0),
    };
    return {
      ...place,
      from,
      to,
      contractAddress: null,
      cumulativeGasUsed: quantity(result.gasUsed),
      gasUsed: quantity(result.gasUsed),
      effectiveGasPrice: quantity(head.baseFeeWei + this.tipWei),
      logs: run.logs.map((log, index) => ({
        ...log,
        ...place,
        logIndex: quantity(index),
        removed: false as const,
      })),
      logsBloom: `0x${"0".repeat(512)}`,
      status: result.success ? "0x1" : "0x0",
      type: quantity(pending.type),
    };
  }

  #transaction(hash: Hex): unknown {
    if (this.hidesTransactions) return null;
    const found = this.#find(hash);
    if (found) return transactionJson(found.mined.transaction, found);
    const pending = this.pool.get(hash.toLowerCase() as Hex);
    return pending ? transactionJson(pending) : null;
  }

  #number(key: string, block: number): bigint {
    return (this.#branch.read(key, block) as bigint | undefined) ?? 0n;
  }

  #nonceOf(account: Hex, block: number): number {
    return Number(this.#number(`nonce ${account}`, block));
  }

  // --- blocks

  #shown(block: Block | undefined): Block | undefined {
    return block && block.number <= this.head.number ? block : undefined;
  }

  #blockAt(at: unknown): Block | undefined {
    const { blocks } = this.#branch;
    if (typeof at === "object" && at !== null) {
      const { blockNumber, blockHash } = at as { blockNumber?: Hex; blockHash?: Hex };
      return blockHash === undefined
        ? this.#blockAt(blockNumber)
        : this.#shown(this.#branch.blockByHash(blockHash));
    }
    const { head } = this;
    const deep = (depth: number): Block | undefined => blocks[Math.max(head.number - depth, 0)];
    if (at === undefined || at === "latest" || at === "pending") return head;
    if (at === "earliest") return blocks[0];
    if (at === "safe") return deep(SAFE_DEPTH);
    if (at === "finalized") return deep(FINALIZED_DEPTH);
    return this.#shown(blocks[Number(at)]);
  }

  /** The block whose state is read. */
  #stateAt(at: unknown): Block {
    const block = this.#blockAt(at);
    if (!block) throw new RpcError(-32000, "header not found");
    if (this.head.number - block.number >= this.statesKept)
      throw new RpcError(-32000, `missing trie node: state of block ${block.number} is pruned`);
    return block;
  }

  #logs(filter: LogFilter): RpcLog[] {
    const { blocks } = this.#branch;
    if (filter.blockHash !== undefined) {
      const block = this.#shown(this.#branch.blockByHash(filter.blockHash));
      if (!block) throw new RpcError(-32000, "unknown block");
      return this.hidesLogs ? [] : block.logs.filter((log) => isMatch(log, filter));
    }
    const numberOf = (at: unknown): number =>
      typeof at === "string" && at.startsWith("0x")
        ? Number(at)
        : (this.#blockAt(at)?.number ?? this.head.number);
    const from = numberOf(filter.fromBlock);
    const to = Math.min(numberOf(filter.toBlock), this.head.number);
    const found: RpcLog[] = [];
    if (this.hidesLogs) return found;
    for (let number = from; number <= to; number += 1)
      for (const log of blocks[number]?.logs ?? []) if (isMatch(log, filter)) found.push(log);
    return found;
  }

  // --- calls

  #call(request: CallRequest, at: unknown): Hex {
    const { ledger } = this.#deps;
    const block = this.#stateAt(at);
    const call = this.#prepared(request, block);
    const run = ledger.execution(block, this.#branch);
    run.deniesUses = this.deniesUses;
    const result = ledger.call(run, call);
    if (result.success) return `0x${result.output}`;
    if (result.isOutOfGas) throw new RpcError(-32000, "out of gas");
    throw revertError(result.output);
  }

  #prepared(request: CallRequest, block: Block) {
    const { blockGasLimit } = this.#deps;
    const from = (request.from ?? ZERO).toLowerCase() as Hex;
    const to = request.to?.toLowerCase() as Hex | undefined;
    const input = (request.data ?? request.input ?? "0x").toLowerCase() as Hex;
    const gas = request.gas === undefined ? blockGasLimit : Number(request.gas);
    const value = BigInt(request.value ?? 0);
    const maxFeeWei = BigInt(request.maxFeePerGas ?? request.gasPrice ?? 0);
    if (maxFeeWei > 0n && maxFeeWei < block.baseFeeWei)
      throw new RpcError(
        -32000,
        `max fee per gas less than block base fee: address ${from}, maxFeePerGas: ${maxFeeWei}, baseFee: ${block.baseFeeWei}`,
      );
    const cost = maxFeeWei * BigInt(gas) + value;
    const balance = this.#number(`wei ${from}`, block.number);
    if (balance < cost)
      throw new RpcError(
        -32000,
        `insufficient funds for gas * price + value: address ${from} have ${balance} want ${cost}`,
      );
    const { gas: fixed, floor } = intrinsicGas({ input, to: to ?? null });
    const least = Math.max(fixed, floor);
    if (gas < least)
      throw new RpcError(-32000, `intrinsic gas too low: have ${gas}, want ${least}`);
    return { from, to, input, gas, value };
  }

  /** The least gas with which the call succeeds. */
  #estimate(request: CallRequest, at: unknown): Hex {
    const { ledger } = this.#deps;
    const block = this.#stateAt(at);
    const call = this.#prepared(request, block);
    const tried = (gas: number) =>
      ledger.call(ledger.execution(block, this.#branch), { ...call, gas });
    const first = tried(call.gas);
    if (!first.success) {
      if (first.isOutOfGas) throw new RpcError(-32000, "out of gas");
      throw revertError(first.output);
    }
    let [low, high] = [first.gasUsed - 1, call.gas];
    if (tried(first.gasUsed).success) return quantity(first.gasUsed);
    while (high - low > 1) {
      const middle = Math.min(Math.floor((low + high) / 2), low * 2);
      if (tried(middle).success) high = middle;
      else low = middle;
    }
    return quantity(high);
  }

  #simulate(request: SimulateRequest, at: unknown): unknown {
    const { ledger } = this.#deps;
    const run = ledger.execution(this.#stateAt(at), this.#branch);
    return request.blockStateCalls.map(({ calls }) => ({
      calls: calls.map((each) => {
        const call = this.#prepared(
          { ...each, maxFeePerGas: undefined, gasPrice: undefined },
          this.head,
        );
        const { success, output, gasUsed } = ledger.call(run, call);
        const error = success ? {} : { error: { code: 3, message: "execution reverted" } };
        return {
          status: success ? "0x1" : "0x0",
          returnData: `0x${output}`,
          gasUsed: quantity(gasUsed),
          logs: [],
          ...error,
        };
      }),
    }));
  }
}

interface LogFilter {
  address?: Hex | Hex[];
  topics?: (Hex | Hex[] | null)[];
  fromBlock?: Hex;
  toBlock?: Hex;
  blockHash?: Hex;
}

interface CallRequest {
  from?: Hex;
  to?: Hex | null;
  data?: Hex;
  input?: Hex;
  gas?: Hex;
  value?: Hex;
  maxFeePerGas?: Hex | undefined;
  gasPrice?: Hex | undefined;
}

interface SimulateRequest {
  blockStateCalls: { calls: CallRequest[] }[];
}

const refused = (text: string): RpcError => new RpcError(-32000, text);
const missing = (method: string): RpcError =>
  new RpcError(-32601, `the method ${method} does not exist/is not available`);

function isMatch(log: RpcLog, { address, topics = [] }: LogFilter): boolean {
  const isAny = (wanted: Hex | Hex[] | null | undefined, found: Hex | undefined): boolean =>
    wanted === null ||
    wanted === undefined ||
    (found !== undefined &&
      (Array.isArray(wanted)
        ? wanted.some((one) => one.toLowerCase() === found)
        : wanted.toLowerCase() === found));
  return (
    isAny(address, log.address) && topics.every((wanted, index) => isAny(wanted, log.topics[index]))
  );
}

function blockJson(block: Block | undefined, withTransactions: boolean): unknown {
  if (!block) return null;
  const { number, hash, parentHash, mined } = block;
  return {
    number: quantity(number),
    hash,
    parentHash,
    timestamp: quantity(block.timestampSeconds),
    baseFeePerGas: quantity(block.baseFeeWei),
    gasLimit: quantity(block.gasLimit),
    gasUsed: quantity(block.gasUsed),
    miner: ZERO,
    difficulty: "0x0",
    extraData: "0x",
    nonce: "0x0000000000000000",
    size: "0x200",
    uncles: [],
    transactions: withTransactions
      ? mined.map((each) => transactionJson(each.transaction, { mined: each, block }))
      : mined.map(({ transaction }) => transaction.hash),
  };
}

function transactionJson(
  transaction: Transaction,
  place?: { mined: Mined; block: Block },
): unknown {
  const { hash, from, to, nonce, input, value, gas, maxFeeWei, priorityFeeWei } = transaction;
  return {
    hash,
    from,
    to,
    nonce: quantity(nonce),
    input,
    value: quantity(value),
    gas: quantity(gas),
    type: quantity(transaction.type),
    gasPrice: place ? place.mined.receipt.effectiveGasPrice : quantity(maxFeeWei),
    maxFeePerGas: quantity(maxFeeWei),
    maxPriorityFeePerGas: quantity(priorityFeeWei),
    blockHash: place?.block.hash ?? null,
    blockNumber: place ? quantity(place.block.number) : null,
    transactionIndex: place ? place.mined.receipt.transactionIndex : null,
  };
}
