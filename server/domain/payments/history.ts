/** Reading an agent's payments: pages, one, or all of them as CSV. */
import { ApiError } from "../../errors.ts";
import type { PaymentFilter, PaymentRow } from "../../adapters/stores/payments.ts";
import type { Payment, PaymentFilters } from "../../schemas/payments.ts";
import { toPage, type PageOf } from "../paging.ts";
import { CSV_HEADER, csvLine } from "./csv.ts";
import { readPaymentFilters } from "./filters.ts";
import { presentPayment } from "./present.ts";

export interface HistoryDependencies {
  list(filter: PaymentFilter): Promise<PaymentRow[]>;
  find(key: { agentId: string; paymentId: string }): Promise<PaymentRow | undefined>;
  networkOf(chainId: number): string;
}

const CSV_CHUNK = 500;

export class PaymentHistory {
  readonly #deps: HistoryDependencies;

  constructor(deps: HistoryDependencies) {
    this.#deps = deps;
  }

  async page(agentId: string, query: PaymentFilters): Promise<PageOf<Payment>> {
    const filter = readPaymentFilters(query);
    const rows = await this.#deps.list({ agentId, ...filter });
    return toPage(rows, filter.page.limit, (row) => this.present(row));
  }

  async one(agentId: string, paymentId: string): Promise<Payment> {
    const row = await this.#deps.find({ agentId, paymentId });
    if (!row)
      throw new ApiError("not_found", { detail: "There is no such payment of this agent." });
    return this.present(row);
  }

  /** All that match, newest first, read in chunks: an export of any size takes little memory. */
  async *csv(agentId: string, query: PaymentFilters): AsyncGenerator<string> {
    const filter = readPaymentFilters(query);
    yield CSV_HEADER;
    let { after } = filter.page;
    for (;;) {
      const page = { limit: CSV_CHUNK, after };
      const rows = await this.#deps.list({ agentId, ...filter, page });
      const shown = rows.slice(0, CSV_CHUNK);
      yield shown.map((row) => csvLine(this.present(row))).join("");
      if (rows.length <= CSV_CHUNK) return;
      after = shown.at(-1);
    }
  }

  present(row: PaymentRow): Payment {
    return presentPayment(row, (chainId) => this.#deps.networkOf(chainId));
  }
}
