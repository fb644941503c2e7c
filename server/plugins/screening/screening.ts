/**
 * Whether the operator allows these addresses to pay and to be paid. It is asked before anything is decided, never in a
 * database transaction, and never about money that returns to its owner: a withdrawal, or a channel's refund.
 */
import type { Address } from "viem";
import type { OrderKind } from "../../core/orders.ts";
import { ApiError } from "../../errors.ts";
import { ScreeningFailed, type ScreeningSource } from "./source.ts";

/** Where it is asked. */
export type Place = "facilitator" | "payment" | "order" | "sign_up";
/** Refused: a listed address. Unchecked: paid without an answer. Unavailable: refused for the moment. */
export type Outcome = "refused" | "unchecked" | "unavailable";

interface Deps {
  source: ScreeningSource;
  /** Without an answer, payments are made. */
  isOpen: boolean;
  count: (labels: { place: Place; outcome: Outcome }) => void;
  ownerOf(agentId: string): Promise<Address | undefined>;
  nowMs: () => number;
  log: { warn(fields: object, message: string): void };
}

type Verdict =
  | { kind: "clear" }
  | { kind: "unavailable" }
  | { kind: "listed"; addresses: readonly string[] };

/** The person who acts, and for whom. */
interface Person {
  address: Address;
  second?: { address: Address } | null;
  member?: { address: Address } | null;
  /** The members whose signatures are joined in a team's. */
  signers?: readonly { address: string }[] | undefined;
}

/** What a listed owner still signs: a withdrawal, and where it goes. */
const OPEN_ORDERS: ReadonlySet<OrderKind> = new Set(["Withdraw", "PayoutAddress"]);
/** Third parties can cause refusals, so they get one line a second. */
const LINE_EVERY_MS = 1_000;

export class Screening {
  readonly #deps: Deps;
  readonly #lines = new Map<string, { atMs: number; leftOut: number }>();

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  /** Of a list, how old it is; undefined for a service. */
  get listAgeSeconds(): number | undefined {
    return this.#deps.source.ageSeconds?.();
  }

  /** The reason of the protocol for which the facilitator does not settle this payment. */
  async refusalOfPayment(
    addresses: readonly Address[],
  ): Promise<"address_screened" | "screening_unavailable" | undefined> {
    const { kind } = await this.#ask("facilitator", addresses);
    if (kind === "clear") return undefined;
    return kind === "listed" ? "address_screened" : "screening_unavailable";
  }

  /** Why an agent's payment is denied. Throws if that is not known now, and unknown must not be paid. */
  async refusalOfAgent(
    payer: { id: string; walletAddress: Address },
    payee: Address,
  ): Promise<{ code: "payee_screened" | "account_screened" } | undefined> {
    const owner = await this.#deps.ownerOf(payer.id);
    const asked = [payee, payer.walletAddress, ...(owner === undefined ? [] : [owner])];
    const verdict = await this.#ask("payment", asked);
    if (verdict.kind === "clear") return undefined;
    if (verdict.kind === "unavailable") throw new ApiError("screening_unavailable");
    const isPayee = verdict.addresses.includes(payee.toLowerCase());
    return { code: isPayee ? "payee_screened" : "account_screened" };
  }

  /** Throws unless this owner may sign an order of this kind. */
  async assertMaySign(person: Person, kind: OrderKind): Promise<void> {
    if (OPEN_ORDERS.has(kind)) return;
    const { address, second, member, signers = [] } = person;
    const others = [second, member, ...signers].flatMap((other) => other?.address ?? []);
    const verdict = await this.#ask("order", [address, ...(others as Address[])]);
    if (verdict.kind === "listed") throw new ApiError("account_screened");
    if (verdict.kind === "unavailable") throw new ApiError("screening_unavailable");
  }

  /** Throws unless this wallet may sign in. Who has an account already always may, to withdraw. */
  async assertMaySignIn(address: Address, hasAccount: () => Promise<boolean>): Promise<void> {
    const verdict = await this.#ask("sign_up", [address], hasAccount);
    if (verdict.kind === "listed")
      throw new ApiError("account_screened", {
        detail: "This service does not open an account for this wallet.",
      });
    if (verdict.kind === "unavailable") throw new ApiError("screening_unavailable");
  }

  /** `isExempt`: read only if the answer would not be "clear". */
  async #ask(
    place: Place,
    given: readonly Address[],
    isExempt?: () => Promise<boolean>,
  ): Promise<Verdict> {
    const addresses = [...new Set(given.map((address) => address.toLowerCase()))];
    const clear = { kind: "clear" } as const;
    try {
      const blocked = await this.#deps.source.blockedAmong(addresses);
      if (blocked.length === 0 || (await isExempt?.()) === true) return clear;
      this.#note(place, "refused", { addresses: blocked });
      return { kind: "listed", addresses: blocked };
    } catch (error) {
      if (!(error instanceof ScreeningFailed)) throw error;
      if ((await isExempt?.()) === true) return clear;
      const { isOpen } = this.#deps;
      this.#note(place, isOpen ? "unchecked" : "unavailable", { addresses, err: error });
      return isOpen ? clear : { kind: "unavailable" };
    }
  }

  #note(place: Place, outcome: Outcome, fields: object): void {
    const { count, log, nowMs } = this.#deps;
    count({ place, outcome });
    const kind = `${place} ${outcome}`;
    const last = this.#lines.get(kind);
    if (last && nowMs() - last.atMs < LINE_EVERY_MS) {
      last.leftOut += 1;
      return;
    }
    this.#lines.set(kind, { atMs: nowMs(), leftOut: 0 });
    const leftOut = last?.leftOut ?? 0;
    log.warn({ place, ...fields, ...(leftOut > 0 && { leftOut }) }, LINES[outcome]);
  }
}

const LINES: Record<Outcome, string> = {
  refused: "a screened address was refused",
  unchecked: "addresses could not be screened and were allowed",
  unavailable: "addresses could not be screened and were refused",
};
