import { queryOptions } from "@tanstack/react-query";
import { isSameAddress } from "../../lib/address.ts";
import { api } from "../../lib/api.ts";
import { serverNowMs } from "../../lib/clock.ts";
import { formatUsdc, toDecimal } from "../../lib/money.ts";
import { signed } from "../../lib/orders/signed.ts";
import { type SignatureRequest, OrderMismatch } from "../../lib/orders/signing.ts";
import { pagedQuery } from "../../lib/pages.ts";
import { keys } from "../../lib/query-keys.ts";
import { type Authorization, transferTypedData } from "../../lib/wallet/typed-data.ts";
import type {
  CreatedMerchantKey,
  Merchant,
  MerchantKey,
  MerchantProduct,
  MerchantSettlement,
  MerchantSettlementDetail,
  NetworkInfo,
  NewMerchantReceipt,
  Refund,
} from "../../lib/wire.ts";

/** Short, because payments arrive while the page is open. */
const FRESH_MS = 5_000;

export const merchantQuery = (days: string) =>
  queryOptions({
    queryKey: keys.merchant(days),
    queryFn: ({ signal }) => api.get<Merchant>("/api/merchant", { signal, query: { days } }),
    refetchInterval: FRESH_MS,
  });

export const productsQuery = (days: string) => ({
  ...pagedQuery<MerchantProduct>(keys.merchantProducts(days), "/api/merchant/products", { days }),
  refetchInterval: FRESH_MS,
});

export interface SettlementFilter {
  readonly [name: string]: string | undefined;
}

const SETTLEMENTS = "/api/merchant/settlements";

export const settlementsQuery = (filter: SettlementFilter) => ({
  ...pagedQuery<MerchantSettlement>(keys.merchantSettlements(filter), SETTLEMENTS, filter),
  refetchInterval: FRESH_MS,
});

/** A link instead of a script, so that the browser writes the file while it downloads. */
export function csvHref(filter: SettlementFilter): string {
  const given = Object.entries(filter).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, value]],
  );
  const query = new URLSearchParams(given).toString();
  return `${SETTLEMENTS}.csv${query === "" ? "" : `?${query}`}`;
}

export const settlementQuery = (id: string) =>
  queryOptions({
    queryKey: keys.merchantSettlement(id),
    queryFn: ({ signal }) => api.get<MerchantSettlementDetail>(`${SETTLEMENTS}/${id}`, { signal }),
  });

export const makeReceipt = (id: string): Promise<NewMerchantReceipt> =>
  api.post(`${SETTLEMENTS}/${id}/receipt`, {});

/** A transfer is valid for 15 minutes; the margin allows for clock differences. */
const MAX_WAIT_MS = 20 * 60_000;

/**
 * Checks the order before the wallet sees it: from the paid wallet back to the payer, exactly this amount.
 */
function refundRequest(
  settlement: MerchantSettlement,
  network: NetworkInfo,
  { owner, amount }: { owner: string; amount: string },
): SignatureRequest {
  const what = `${formatUsdc(amount)} USDC`;
  return {
    kind: (order) => transferTypedData(network, order as unknown as Authorization),
    title: `Refund ${what}`,
    isOnScreen: true,
    chainId: network.chainId,
    effect: `This sends ${what} from your wallet. Purser pays the gas.`,
    read(order) {
      const { from, to, value, validAfter, validBefore, nonce } = order;
      const isSame =
        isSameAddress(String(from), owner) &&
        isSameAddress(String(to), settlement.payer) &&
        toDecimal(BigInt(String(value))) === amount &&
        String(validAfter) === "0" &&
        Number(validBefore) * 1000 < serverNowMs() + MAX_WAIT_MS &&
        /^0x[0-9a-f]{64}$/i.test(String(nonce));
      if (!isSame)
        throw new OrderMismatch([
          {
            what: "Refund",
            before: `${what} to ${settlement.payer}`,
            after: `${String(value)} units from ${String(from)} to ${String(to)}`,
          },
        ]);
      return Promise.resolve({
        changes: [
          { what: "Amount", before: "", after: what },
          { what: "Back to the payer", before: "", after: settlement.payer },
        ],
        hasUnseenChanges: false,
      });
    },
  };
}

export const sendRefund = (
  settlement: MerchantSettlement,
  network: NetworkInfo,
  terms: { owner: string; amount: string },
): Promise<Refund> =>
  signed(refundRequest(settlement, network, terms), (signature) =>
    api.post(`${SETTLEMENTS}/${settlement.id}/refund`, { amount: terms.amount, ...signature }),
  );

export const merchantKeysQuery = pagedQuery<MerchantKey>(keys.merchantKeys, "/api/merchant/keys");

export const createMerchantKey = (label: string): Promise<CreatedMerchantKey> =>
  api.post("/api/merchant/keys", { label });

export const revokeMerchantKey = (id: string): Promise<unknown> =>
  api.delete(`/api/merchant/keys/${id}`);
