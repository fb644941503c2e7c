/**
 * Pays what a payee owes, with x402: a 402 with the amount, then our own facilitator settles it to FEE_ADDRESS. The settlement
 * row names the account, and the credit is written with the settlement's outcome, so nothing here is needed for it.
 */
import type { IncomingHttpHeaders } from "node:http";
import { getAddress, type Address } from "viem";
import { cashier, type Charge } from "../../../packages/paywall/src/paywall.ts";
import { PAY_FEES_PATH, type FeeTerms } from "../../core/fees.ts";
import { isRecord, readForeignJson } from "../../core/foreign-text.ts";
import { formatAtomic, parseAtomic, parsePayable } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { ApiError } from "../../errors.ts";
import { TOKEN_SCHEME } from "../../schemes/index.ts";
import type { FeeKey } from "./store.ts";

interface Deps {
  facilitator: Parameters<typeof cashier>[0]["facilitator"];
  networks: readonly NetworkFacts[];
  terms: FeeTerms;
  minPaymentAtomic: bigint;
  publicUrl: string;
  owed: (key: FeeKey) => Promise<bigint>;
}

export interface FeePayment {
  account: Address;
  network: NetworkFacts;
  /** As the caller names it. */
  amount: string | undefined;
  headers: IncomingHttpHeaders;
}

export class FeePayments {
  readonly #deps: Deps;
  readonly #cashier: ReturnType<typeof cashier> | undefined;

  constructor(deps: Deps) {
    this.#deps = deps;
    const { facilitator, networks, terms } = deps;
    this.#cashier =
      terms.payTo &&
      cashier({ facilitator, networks, payTo: getAddress(terms.payTo), schemes: [TOKEN_SCHEME] });
  }

  async pay({ account, network, amount, headers }: FeePayment): Promise<Charge> {
    if (!this.#cashier)
      throw new ApiError("not_found", { detail: "This facilitator has no address for fees." });
    const price = await this.#price({ account, network, amount, headers });
    return this.#cashier.charge(
      {
        price: formatAtomic(price),
        networks: [network.id],
        description: `Fees of ${getAddress(account)} at this facilitator`,
        serviceName: "Purser",
      },
      {
        method: "POST",
        url: `${this.#deps.publicUrl}${PAY_FEES_PATH}?account=${account}&network=${network.id}`,
        path: PAY_FEES_PATH,
        headers,
      },
      async () => undefined,
    );
  }

  /** Fees go on being charged while the payer signs: what was signed is paid, and not what is owed by then. */
  async #price({ account, network, amount, headers }: FeePayment): Promise<bigint> {
    const { minPaymentAtomic, owed } = this.#deps;
    const named = amount === undefined ? undefined : parsePayable(amount);
    if (named && !named.ok) throw refuseField("invalid_amount", "query.amount", named.reason);
    const wanted =
      named?.atomic ?? signedAmount(headers) ?? (await owed({ chainId: network.chainId, account }));
    if (wanted <= 0n)
      throw refuseField(
        "invalid_amount",
        "query.amount",
        "is missing: nothing is owed, so name what to pay in advance",
      );
    // What is paid too much is credited.
    return wanted < minPaymentAtomic ? minPaymentAtomic : wanted;
  }
}

function signedAmount(headers: IncomingHttpHeaders): bigint | undefined {
  const proof = headers["payment-signature"] ?? headers["x-payment"];
  if (typeof proof !== "string") return undefined;
  const text = Buffer.from(proof, "base64").toString("utf8");
  const read = readForeignJson(() => JSON.parse(text) as unknown);
  const { payload } = record(read.ok ? read.value : undefined);
  return parseAtomic(record(record(payload)["authorization"])["value"]);
}

const record = (value: unknown): Record<string, unknown> => (isRecord(value) ? value : {});
