/**
 * Movements as double entries, in the format of beancount (https://beancount.github.io): a plain text file that other
 * bookkeeping programs read as well.
 */
import { plainWords } from "../../core/foreign-text.ts";
import { formatAtomic, USDC_DECIMALS } from "../../core/money.ts";
import type { ExportedAgent, Movement } from "./movements.ts";

/** Of one agent: its sums at both ends of the time, and whether the wallet's sum at the end is proven. */
export interface AgentBooks {
  agent: ExportedAgent;
  walletBeforeAtomic: bigint;
  walletAtEndAtomic: bigint;
  channelsBeforeAtomic: bigint;
  /** Why the wallet's balance cannot be asserted; null: the chain was read, and equals it. */
  notProven: string | null;
}

export interface BooksSpan {
  /** Days: YYYY-MM-DD. `to` is the day after the last one. */
  from: string;
  to: string;
}

/** Further payees and sites are booked together, so that memory is bounded. */
const MOST_ACCOUNTS = 5_000;
const OPENING = "Equity:Purser:Opening-Balances";
const FUNDING = "Equity:Purser:Funding";
const WITHDRAWALS = "Equity:Purser:Withdrawals";
const OTHERS = "Expenses:Purser:Others";

export async function* beancountOf(
  books: readonly AgentBooks[],
  chunks: AsyncGenerator<Movement[]>,
  span: BooksSpan,
): AsyncGenerator<string> {
  const expenses = new Set<string>();
  const { from, to } = span;
  yield header(span);
  yield* openings(books, from);
  for await (const movements of chunks) {
    let text = "";
    for (const movement of movements) {
      const account = expenseOf(movement, expenses);
      if (account !== undefined && !expenses.has(account)) {
        expenses.add(account);
        text += `${from} open ${account} USDC\n`;
      }
      text += entry(movement, account ?? "");
    }
    yield text;
  }
  yield* endings(books, to);
}

const header = ({ from, to }: BooksSpan): string =>
  `; Purser, ${from} up to and not including ${to}. Days are UTC.
option "title" "Purser"
option "operating_currency" "USDC"

${[OPENING, FUNDING, WITHDRAWALS].map((account) => `${from} open ${account} USDC\n`).join("")}`;

function* openings(books: readonly AgentBooks[], from: string): Generator<string> {
  for (const { agent, walletBeforeAtomic, channelsBeforeAtomic } of books) {
    const wallet = walletAccount(agent);
    const channels = channelsAccount(agent);
    yield `${from} open ${wallet} USDC\n${from} open ${channels} USDC\n`;
    const before = [
      [wallet, walletBeforeAtomic],
      [channels, channelsBeforeAtomic],
    ] as const;
    for (const [account, atomic] of before)
      if (atomic !== 0n)
        yield `${from} * "Opening balance"\n${posting(account, atomic)}${posting(OPENING, -atomic)}`;
  }
}

function* endings(books: readonly AgentBooks[], to: string): Generator<string> {
  for (const { agent, walletAtEndAtomic, notProven } of books) {
    const account = walletAccount(agent);
    yield notProven === null
      ? `${to} balance ${account} ${numberOf(walletAtEndAtomic)} ~ 0 USDC\n`
      : `; ${account}: the balance is not asserted, because ${notProven}.\n`;
  }
}

function entry(movement: Movement, expense: string): string {
  const { at, amountAtomic, agent, memo, id, hash, site, payee, refundOf, task } = movement;
  const own = movement.account === "wallet" ? walletAccount(agent) : channelsAccount(agent);
  const facts = { id, hash, payee, site, "refund-of": refundOf, task, time: at.toISOString() };
  const metadata = Object.entries(facts).flatMap(([name, value]) =>
    value === null ? [] : `  ${name}: ${quotedText(value)}\n`,
  );
  return `${at.toISOString().slice(0, 10)} * ${quotedText(site ?? payee)} ${quotedText(memo ?? "")}
${metadata.join("")}${posting(own, amountAtomic)}${posting(otherSide(movement, expense), -amountAtomic)}`;
}

function otherSide({ category, agent }: Movement, expense: string): string {
  if (category === "withdrawal") return WITHDRAWALS;
  if (category === "funding") return FUNDING;
  if (category === "channel deposit" || category === "channel return")
    return channelsAccount(agent);
  return expense;
}

/** Of payments and refunds: a refund makes the expense smaller. */
function expenseOf(
  { category, site, payee }: Movement,
  known: ReadonlySet<string>,
): string | undefined {
  if (category !== "payment" && category !== "refund") return undefined;
  const name = site === null ? `Payee-${payee}` : component(site.replace(/^https?:\/\//, ""));
  const account = `Expenses:Purser:${name}`;
  return known.has(account) || known.size < MOST_ACCOUNTS ? account : OTHERS;
}

const walletAccount = (agent: ExportedAgent): string => `Assets:Purser:${agentName(agent)}`;
const channelsAccount = (agent: ExportedAgent): string => `Assets:Channels:${agentName(agent)}`;

/** With the end of the id: two agents may have one name. */
const agentName = ({ id, name }: ExportedAgent): string =>
  `${component(plainWords(name, 40))}-${id.slice(-8)}`;

/** A part of an account's name begins with a capital letter or a digit; the rest are letters, digits and hyphens. */
function component(text: string): string {
  const safe = text
    .replaceAll(/[^A-Za-z0-9.-]+/g, "_")
    .replaceAll("-", "--")
    .replaceAll(/[._]/g, "-")
    .replace(/^-+/, "");
  const [first = "X", ...rest] = safe;
  return `${first.toUpperCase()}${rest.join("")}`;
}

const posting = (account: string, atomic: bigint): string =>
  `  ${account}  ${numberOf(atomic)} USDC\n`;

/** Always with six decimals: programs read the precision of a currency from its numbers. */
function numberOf(atomic: bigint): string {
  const [whole = "0", fraction = ""] = formatAtomic(atomic).split(".");
  return `${whole}.${fraction.padEnd(USDC_DECIMALS, "0")}`;
}

/** One line, without the two characters that would end or change it. */
const quotedText = (text: string): string =>
  `"${plainWords(text, 300)
    .replaceAll("\\", "\\\\")
    .replaceAll('"', String.raw`\"`)}"`;
