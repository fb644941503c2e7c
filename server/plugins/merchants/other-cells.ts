/**
 * A merchant's settlements in the other cells. Each payment is stored in its payer's cell, and the merchant's account is
 * in one of them: that cell asks the others, for the wallet that is signed in.
 */
import type { Static } from "typebox";
import { encodeCursor, type PageRequest } from "../../core/paging.ts";
import { ApiError, ERRORS, type ErrorCode } from "../../errors.ts";
import type { MerchantSettlement, NewMerchantReceipt } from "../../schemas/merchants.ts";
import type {
  MerchantExportFilters,
  MerchantSettlementDetail,
  Refund,
  RefundRequest,
} from "../../schemas/merchants.ts";
import type { Cell } from "../../core/cells.ts";
import { CellUnreachable, type Cells, type FromOthers } from "../cells/index.ts";
import { collect, type Elsewhere } from "../cells/lists.ts";
import type { Overview } from "./overview.ts";
import type { ProductRow } from "./products.ts";
import {
  PATHS,
  readOverviewWire,
  readProductsWire,
  type CountedRefusals,
  type Wire,
} from "./cell-wire.ts";
import type { Payee } from "./store.ts";

/** Longer than the other cell waits for its block. */
const REFUND_MORE_MS = 5_000;
const RECEIPT_MS = 5_000;

type Filters = Static<typeof MerchantExportFilters>;

export class OtherCellsOfMerchant {
  readonly #cells: Cells;
  readonly #waitMs: number;

  constructor(cells: Cells, { waitMs }: { waitMs: number }) {
    this.#cells = cells;
    this.#waitMs = waitMs;
  }

  async overview(payee: Payee, days: number): Promise<Elsewhere<Overview>> {
    const asked = await this.#ask<Wire["overview"]>(PATHS.overview, payee, { days });
    return collect(asked, readOverviewWire);
  }

  /** Each list is as long as a page and one more, in the order of `newestFirst`. */
  async settlements(
    payee: Payee,
    query: Filters,
    { limit, after }: PageRequest,
    isAsked: (cell: Cell) => boolean,
  ): Promise<Elsewhere<MerchantSettlement[]>> {
    const sent = { query, limit, ...(after && { cursor: encodeCursor(after) }) };
    const asked = await this.#ask<Wire["settlements"]>(PATHS.settlements, payee, sent, isAsked);
    return collect(asked, ({ items }) => items);
  }

  async products(
    payee: Payee,
    { days, until }: { days: number; until: Date },
  ): Promise<Elsewhere<ProductRow[]>> {
    const sent = { days, until: until.toISOString() };
    const asked = await this.#ask<Wire["products"]>(PATHS.products, payee, sent);
    return collect(asked, readProductsWire);
  }

  /** Throws `not_found` if all cells answered that they do not have it. */
  async find(
    payee: Payee,
    id: string,
  ): Promise<{ cell: Cell; settlement: MerchantSettlementDetail }> {
    const asked = await this.#ask<Wire["settlement"]>(PATHS.settlement, payee, { id });
    for (const { cell, answer } of asked.answers)
      if (answer.settlement) return { cell, settlement: answer.settlement };
    if (asked.missing.length > 0)
      throw new ApiError("service_unavailable", {
        detail: `The settlement is not in this cell, and ${asked.missing.join(", ")} does not answer now. Try again.`,
        extra: { missingCells: asked.missing },
      });
    throw new ApiError("not_found", { detail: "You have no settlement with this id." });
  }

  async refund(
    payee: Payee & { merchant: string | undefined },
    id: string,
    request: RefundRequest,
  ): Promise<Refund> {
    const { address, chainId, merchant } = payee;
    const { cell } = await this.find(payee, id);
    const sent = { payee: { address, chainId }, id, request, ...(merchant && { merchant }) };
    const waitMs = this.#waitMs + REFUND_MORE_MS;
    const { refund } = await this.#order<Wire["refund"]>(cell, PATHS.refund, sent, waitMs);
    return refund as Refund;
  }

  async receipt(payee: Payee, id: string): Promise<NewMerchantReceipt> {
    const { address, chainId } = payee;
    const { cell } = await this.find(payee, id);
    const sent = { payee: { address, chainId }, id };
    const { receipt } = await this.#order<Wire["receipt"]>(cell, PATHS.receipt, sent, RECEIPT_MS);
    return receipt as NewMerchantReceipt;
  }

  /** Once: a cell that does not answer now never gets them. */
  async sendRefusals(counts: CountedRefusals): Promise<void> {
    await this.#cells.askOthers<Wire["refusals"]>(PATHS.refusals, counts);
  }

  #ask<T>(
    path: string,
    { address, chainId }: Payee,
    sent: object,
    isAsked?: (cell: Cell) => boolean,
  ): Promise<FromOthers<T>> {
    return this.#cells.askOthers<T>(path, { payee: { address, chainId }, ...sent }, isAsked);
  }

  /** A refusal of the other cell is this one's refusal. */
  async #order<T extends { refused?: Wire["refused"] | undefined }>(
    cell: Cell,
    path: string,
    sent: object,
    waitMs: number,
  ): Promise<T> {
    let answer: T;
    try {
      answer = await this.#cells.ask<T>(cell, path, sent, waitMs);
    } catch (error) {
      if (error instanceof ApiError) throw error;
      const detail =
        error instanceof CellUnreachable
          ? `The payment is in the cell ${cell.id}, which cannot be reached now. Nothing was done.`
          : `The payment is in the cell ${cell.id}, which did not answer in time. Send the same request again to get its outcome.`;
      throw new ApiError("service_unavailable", { detail, cause: error });
    }
    if (!answer.refused) return answer;
    const { code, detail, extra } = answer.refused;
    if (!Object.hasOwn(ERRORS, code)) throw new Error(`${cell.id} refused with ${code}`);
    throw new ApiError(code as ErrorCode, { detail, extra });
  }
}
