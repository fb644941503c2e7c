// The reconciliation of the soak: compares the chain's own logs with the service's rows, and both with what
// clients received. It uses none of the service's code.
import type { Pool } from "pg";
import { x402ExactPermit2ProxyABI } from "@x402/evm";
import {
  decodeFunctionData,
  multicall3Abi,
  parseAbi,
  parseEventLogs,
  toHex,
  type Address,
  type Hex,
} from "viem";
import { EXACT_PROXY, PERMIT2 } from "../helpers/permit2.ts";
import type { TestChain } from "../helpers/chain.ts";
import type { SoakAgent, ReportedOutcome } from "./clients.ts";

const EVENTS = parseAbi([
  "event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)",
  "event AuthorizationCanceled(address indexed authorizer, bytes32 indexed nonce)",
  "event Approval(address indexed owner, address indexed spender, uint256 value)",
  "event Transfer(address indexed from, address indexed to, uint256 value)",
  "function balanceOf(address account) view returns (uint256)",
]);
const BLOCKS_AT_ONCE = 500n;

/** A used authorization and its transfer. */
export interface Move {
  from: Address;
  to: Address;
  amountAtomic: bigint;
  nonce: Hex | `permit2:${Hex}`;
  txHash: Hex;
  block: bigint;
}

export interface ChainLog {
  moves: Move[];
  byKey: Map<string, Move[]>;
  byAmount: Map<string, Move[]>;
  cancelled: Set<string>;
  /** Wallets that gave Permit2 an allowance: the transaction and the wallet. */
  allowed: Set<string>;
}

const lower = <T extends string>(text: T): T => text.toLowerCase() as T;
const keyOf = (from: string, nonce: string): string => `${lower(from)}:${lower(nonce)}`;
const amountKeyOf = (from: string, to: string, amount: bigint): string =>
  `${lower(from)}>${lower(to)}=${amount}`;

export async function readChain(chain: TestChain): Promise<ChainLog> {
  const chainLog: ChainLog = {
    moves: [],
    byKey: new Map(),
    byAmount: new Map(),
    cancelled: new Set(),
    allowed: new Set(),
  };
  const head = await chain.publicClient.getBlockNumber({ cacheTime: 0 });
  for (let fromBlock = 0n; fromBlock <= head; fromBlock += BLOCKS_AT_ONCE) {
    const toBlock = fromBlock + BLOCKS_AT_ONCE - 1n;
    const raw = await chain.publicClient.getLogs({
      address: chain.usdc,
      fromBlock,
      toBlock: toBlock > head ? head : toBlock,
    });
    const logs = parseEventLogs({ abi: EVENTS, logs: raw });
    const byAuthorization = new Set<unknown>();
    for (const [index, log] of logs.entries()) {
      if (log.eventName === "Transfer") continue;
      if (log.eventName === "Approval") {
        const { owner, spender } = log.args;
        if (spender === PERMIT2) chainLog.allowed.add(allowanceKeyOf(log.transactionHash, owner));
        continue;
      }
      const { authorizer, nonce } = log.args;
      if (log.eventName === "AuthorizationCanceled") {
        chainLog.cancelled.add(keyOf(authorizer, nonce));
        continue;
      }
      // The token logs the used authorization, and then the transfer.
      const next = logs[index + 1];
      if (next?.eventName !== "Transfer" || next.transactionHash !== log.transactionHash)
        throw new Error(`${log.transactionHash} used an authorization without a transfer`);
      byAuthorization.add(next);
      note(chainLog, {
        from: lower(authorizer),
        to: lower(next.args.to),
        amountAtomic: next.args.value,
        nonce: lower(nonce),
        txHash: log.transactionHash,
        block: log.blockNumber,
      });
    }
    const others = logs.flatMap((log) =>
      log.eventName === "Transfer" && !byAuthorization.has(log) ? [log] : [],
    );
    await notePermit2(
      chain,
      chainLog,
      others.map(({ transactionHash: txHash, args }) => ({ txHash, ...args })),
    );
  }
  return chainLog;
}

const ZERO = "0x0000000000000000000000000000000000000000";
const allowanceKeyOf = (txHash: string, owner: string): string => `${txHash}:${lower(owner)}`;

/**
 * Transfers without an authorization of the token itself; those by Permit2's proxy are matched to their
 * payment.
 */
async function notePermit2(
  { publicClient }: TestChain,
  chainLog: ChainLog,
  transfers: { txHash: Hex; from: Address; to: Address; value: bigint }[],
): Promise<void> {
  const ours = transfers.filter(({ from }) => from !== ZERO);
  for (const hash of new Set(ours.map(({ txHash }) => txHash))) {
    const { to, input, blockNumber } = await publicClient.getTransaction({ hash });
    for (const call of to === null ? [] : callsOf(to, input)) {
      const spent = spentBy(call);
      const isDone = ours.some(
        ({ txHash, from, to: payee, value }) =>
          txHash === hash &&
          lower(from) === spent?.from &&
          lower(payee) === spent.to &&
          value === spent.amountAtomic,
      );
      if (spent && isDone) note(chainLog, { ...spent, txHash: hash, block: blockNumber ?? 0n });
    }
  }
}

interface Call {
  target: Address;
  callData: Hex;
}

/** The calls of one of our batches, or the only call of a transaction. */
function callsOf(to: Address, input: Hex): readonly Call[] {
  if (lower(to) === lower(EXACT_PROXY)) return [{ target: to, callData: input }];
  try {
    return decodeFunctionData({ abi: multicall3Abi, data: input }).args[0] as readonly Call[];
  } catch {
    return [];
  }
}

/** Permit2 logs no nonce, so it is read from the calldata. */
function spentBy({ target, callData }: Call): Omit<Move, "txHash" | "block"> | undefined {
  if (lower(target) !== lower(EXACT_PROXY)) return undefined;
  const { functionName, args } = decodeFunctionData({
    abi: x402ExactPermit2ProxyABI,
    data: callData,
  });
  if (functionName !== "settle") return undefined;
  const [permit, owner, witness] = args;
  return {
    from: lower(owner),
    to: lower(witness.to),
    amountAtomic: permit.permitted.amount,
    nonce: `permit2:${toHex(permit.nonce, { size: 32 })}`,
  };
}

function note(chainLog: ChainLog, move: Move): void {
  chainLog.moves.push(move);
  const { from, to, nonce, amountAtomic } = move;
  const add = (map: Map<string, Move[]>, key: string) =>
    void map.set(key, [...(map.get(key) ?? []), move]);
  add(chainLog.byKey, keyOf(from, nonce));
  add(chainLog.byAmount, amountKeyOf(from, to, amountAtomic));
}

interface SettlementRow {
  id: string;
  kind: string;
  from_address: Address;
  nonce: Hex;
  status: string;
  tx_hash: Hex | null;
  error_reason: string | null;
  /** Null for EIP-3009. */
  scheme?: string | null;
  /** A reorganisation removed its transaction before it was final, and the ledger recorded that. */
  taken_back?: boolean;
}

export interface PaymentRow {
  id: string;
  agent_id: string;
  kind: string;
  status: string;
  amount: string;
  nonce: Hex | null;
  tx_hash: Hex | null;
  created_at: Date;
  updated_at: Date;
  /** When it began and ceased to count against the limit, alternately; recorded by the soak's own trigger. */
  weighed: { counted: boolean; atMs: number }[];
  /** The reasons in the ledger's corrections, where a count was taken back. */
  corrections: string[];
}

export interface Rows {
  settlements: SettlementRow[];
  payments: PaymentRow[];
}

const OPEN = new Set(["queued", "submitted", "reserved", "unknown"]);
export const isOpen = ({ status }: { status: string }): boolean => OPEN.has(status);

export async function readRows(pool: Pool): Promise<Rows> {
  const [settlements, payments] = await Promise.all([
    pool.query<SettlementRow>(
      `SELECT id, kind, from_address, nonce, status, tx_hash, error_reason, terms->>'scheme' AS scheme, EXISTS (
                SELECT 1 FROM settlement_corrections c
                 WHERE c.from_address = s.from_address AND c.chain_id = s.chain_id AND c.asset = s.asset
                   AND c.nonce = s.nonce AND c.kind = 'settled_to_open' AND c.before->>'finalAt' IS NULL
              ) AS taken_back
         FROM settlements s`,
    ),
    pool.query<PaymentRow>(
      `SELECT id, agent_id, kind, status, amount::text, nonce, tx_hash, created_at, updated_at,
              ARRAY(SELECT json_build_object('counted', w.counted, 'atMs', extract(epoch FROM w.at) * 1000)
                      FROM soak.weighed w WHERE w.payment_id = p.id AND w.agent_id = p.agent_id
                     ORDER BY w.at) AS weighed,
              ARRAY(SELECT c.kind || ' ' || (c.before::text) || ' at ' || c.created_at FROM settlement_corrections c
                     WHERE c.settlement_id = p.id AND c.nonce = p.nonce ORDER BY c.seq) AS corrections
         FROM payments p WHERE status <> 'blocked' ORDER BY created_at`,
    ),
  ]);
  return { settlements: settlements.rows, payments: payments.rows };
}

/** One line of the report: the number of checked items, and each that is wrong. */
export interface Check {
  what: string;
  looked: number;
  wrong: string[];
}

export function check(what: string, looked: number, wrong: string[]): Check {
  return { what, looked, wrong };
}

export function checkOnce({ byKey }: ChainLog): Check {
  const wrong = [...byKey].filter(([, moves]) => moves.length > 1);
  return check(
    "doubled: authorizations used more than once on chain",
    byKey.size,
    wrong.map(([key, moves]) => `${key} in ${moves.map(({ txHash }) => txHash).join(", ")}`),
  );
}

/** A settled row is on chain in its transaction, any other final row is not, and no row is open. */
export function checkRows(chainLog: ChainLog, { settlements, payments }: Rows): Check[] {
  const unequal: string[] = [];
  const open: string[] = [];
  const known = new Set<string>();
  for (const row of settlements) {
    // A deposit into a channel uses a nonce of the token.
    const key = keyOf(row.from_address, row.nonce.replace(/^channel:/, ""));
    known.add(key);
    const [move] = chainLog.byKey.get(key) ?? [];
    const isAllowed = chainLog.allowed.has(allowanceKeyOf(row.tx_hash ?? "", row.from_address));
    const description = `${row.kind} ${row.id} is ${row.status} (${row.error_reason ?? row.tx_hash})`;
    if (isOpen(row)) open.push(description);
    // These move no money of their own by the token's events: the books of the channels show them.
    else if (/^channel-(claim|settle|refund|withdraw)$/.test(row.scheme ?? "")) continue;
    else if (row.kind === "allowance") {
      if (row.status === "settled" && !isAllowed)
        unequal.push(`${description}, the chain shows none`);
    } else if (row.status === "settled" && move?.txHash !== row.tx_hash)
      unequal.push(`${description}, on chain: ${move?.txHash ?? "unused"}`);
    else if (row.status !== "settled" && move) unequal.push(`${description}, the chain used it`);
  }
  for (const { from, nonce, txHash } of chainLog.moves)
    if (!known.has(keyOf(from, nonce))) unequal.push(`${txHash} has no row`);
  const stuck = payments.filter((row) => row.kind !== "incoming" && isOpen(row));
  open.push(...stuck.map((row) => `payment ${row.kind} ${row.id} is ${row.status}`));
  return [
    check("settlements: settled exactly where used on chain", settlements.length, unequal),
    check("rows left open past their deadline", settlements.length, open),
  ];
}

/**
 * For each agent: the settled payments in its ledger are the transfers from its wallet, and each incoming
 * transfer is recorded once.
 */
export function checkLedgers(chainLog: ChainLog, rows: Rows, agents: SoakAgent[]): Check {
  const wrong: string[] = [];
  for (const agent of agents) {
    const wallet = lower(agent.wallet);
    const own = rows.payments.filter(
      (row) => row.agent_id === agent.id && row.status === "settled",
    );
    const sum = (list: PaymentRow[]) => list.reduce((total, row) => total + BigInt(row.amount), 0n);
    const outs = chainLog.moves.filter(({ from }) => from === wallet);
    const ins = chainLog.moves.filter(({ to }) => to === wallet);
    const compare = (what: string, ledgerRows: PaymentRow[], moves: Move[]) => {
      const moved = moves.reduce((total, move) => total + move.amountAtomic, 0n);
      if (sum(ledgerRows) !== moved || ledgerRows.length !== moves.length)
        wrong.push(
          `${agent.id} ${what}: ledger ${ledgerRows.length} of ${sum(ledgerRows)}, chain ${moves.length} of ${moved}`,
        );
    };
    compare(
      "paid",
      own.filter(({ kind }) => kind !== "incoming"),
      outs,
    );
    compare(
      "received",
      own.filter(({ kind }) => kind === "incoming"),
      ins,
    );
  }
  return check("agents' ledgers equal the transfers of their wallets", agents.length, wrong);
}

/**
 * Whether each client received the real outcome of its payment. Success is reported at inclusion, so if a
 * reorganisation removes a payment and no other block includes it in time, the client received a success first
 * and a correction later. These are counted separately. A row that was final, or that reports anything else,
 * counts as lost.
 */
export function checkOutcomes(
  chainLog: ChainLog,
  { payments, settlements }: Rows,
  reported: ReportedOutcome[],
): Check[] {
  const nonceOf = new Map(payments.map((row) => [row.id, row.nonce]));
  const takenBack = new Set(
    settlements
      .filter((row) => row.taken_back === true && row.status !== "settled" && !isOpen(row))
      .map((row) => keyOf(row.from_address, row.nonce)),
  );
  let corrected = 0;
  const lost: string[] = [];
  const false_: string[] = [];
  const successes = new Map<string, number>();
  const facilitated = new Map<string, ReportedOutcome[]>();
  for (const one of reported) {
    const nonce = one.nonce ?? nonceOf.get(one.paymentId ?? "");
    const moves = nonce
      ? (chainLog.byKey.get(keyOf(one.from, nonce)) ?? [])
      : one.to && one.amountAtomic !== undefined
        ? (chainLog.byAmount.get(amountKeyOf(one.from, one.to, one.amountAtomic)) ?? [])
        : [];
    const description = `${one.kind} ${one.paymentId ?? one.nonce} ${one.amountAtomic ?? ""} reported ${one.outcome} ${one.code ?? one.txHash ?? ""}`;
    if (one.outcome === "paid") {
      if (moves.length === 0 && nonce && takenBack.has(keyOf(one.from, nonce))) corrected += 1;
      else if (moves.length !== 1) lost.push(`${description}, on chain ${moves.length} times`);
      else if (one.amountAtomic !== undefined && moves[0]?.amountAtomic !== one.amountAtomic)
        lost.push(`${description}, on chain ${moves[0]?.amountAtomic}`);
      const key = moves[0] ? keyOf(moves[0].from, moves[0].nonce) : description;
      successes.set(key, (successes.get(key) ?? 0) + 1);
    }
    if (one.kind === "facilitated") {
      const key = keyOf(one.from, one.nonce ?? "");
      facilitated.set(key, [...(facilitated.get(key) ?? []), one]);
    } else if (isReportedUnpaid(one) && moves.length > 0)
      false_.push(`${description}, yet on chain in ${moves[0]?.txHash}`);
  }
  // Posted several times: one failure may be followed by a success. Only failures, although it was paid, is
  // wrong.
  for (const [key, ones] of facilitated)
    if (ones.every(({ outcome }) => outcome === "failed") && chainLog.byKey.has(key))
      false_.push(
        `facilitated ${key} reported only ${ones.map(({ code }) => code).join(", ")}, yet on chain`,
      );
  const twice = [...successes].filter(([, times]) => times > 1).map(([key]) => key);
  return [
    check(
      "lost: reported paid, and not on chain exactly once",
      reported.filter(({ outcome }) => outcome === "paid").length,
      lost,
    ),
    check(
      "taken back by a reorganisation, in time for no other block, and reported",
      corrected,
      [],
    ),
    check("reported paid more than once", successes.size, twice),
    check("reported unpaid, and yet on chain", reported.filter(isReportedUnpaid).length, false_),
  ];
}

const isReportedUnpaid = ({ outcome, isClear }: ReportedOutcome): boolean =>
  outcome === "failed" || outcome === "free" || (outcome === "denied" && isClear);

/** Checks the node itself: one that lost or duplicated a block proves nothing about the service. */
export async function checkChain({ publicClient }: TestChain): Promise<Check> {
  const head = await publicClient.getBlockNumber({ cacheTime: 0 });
  const wrong: string[] = [];
  let parent: Hex | undefined;
  // anvil creates block 0 again at each start.
  for (let blockNumber = 1n; blockNumber <= head; blockNumber += 1n) {
    const block = await publicClient.getBlock({ blockNumber }).catch(() => undefined);
    if (!block) wrong.push(`block ${blockNumber} is missing`);
    else if (parent !== undefined && block.parentHash !== parent)
      wrong.push(
        `block ${blockNumber} follows ${block.parentHash}, and the one before it is ${parent}`,
      );
    parent = block?.hash;
  }
  return check("the chain node has each block, one after the other", Number(head), wrong);
}

/** Balances are equal to the transfers in the chain's logs. */
export async function checkBalances(
  chain: TestChain,
  chainLog: ChainLog,
  funded: ReadonlyMap<Address, bigint>,
): Promise<Check> {
  const wrong: string[] = [];
  for (const [address, funds] of funded) {
    const account = lower(address);
    const expected = chainLog.moves.reduce(
      (total, { from, to, amountAtomic }) =>
        total + (to === account ? amountAtomic : 0n) - (from === account ? amountAtomic : 0n),
      funds,
    );
    const balance = await chain.publicClient.readContract({
      address: chain.usdc,
      abi: EVENTS,
      functionName: "balanceOf",
      args: [address],
    });
    if (balance !== expected) wrong.push(`${address} has ${balance}, not ${expected}`);
  }
  return check("balances: funds plus and minus the transfers", funded.size, wrong);
}
