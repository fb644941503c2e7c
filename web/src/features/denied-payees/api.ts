import type { AllowPayeeAgainOrder } from "../../../../packages/rules/src/orders.ts";
import { checkAddress } from "../../lib/address.ts";
import { api } from "../../lib/api.ts";
import { signed } from "../../lib/orders/signed.ts";
import { allowAgainToSign } from "../../lib/orders/to-sign.ts";
import { pagedQuery } from "../../lib/pages.ts";
import { keys } from "../../lib/query-keys.ts";
import type { DeniedPayee, NetworkInfo } from "../../lib/wire.ts";

export const deniedQuery = () =>
  pagedQuery<DeniedPayee>(keys.deniedPayees, "/api/owner/denied-payees");

export type Which = { payee: string } | { site: string };

/** What the user entered: an address, or a page or host of a site. */
export async function readWhich(
  text: string,
): Promise<{ ok: true; which: Which } | { ok: false; reason: string }> {
  const trimmed = text.trim();
  if (/^0x/i.test(trimmed)) {
    const check = await checkAddress(trimmed);
    return check.ok ? { ok: true, which: { payee: check.address } } : check;
  }
  const url = /^[a-z]+:\/\//i.test(trimmed) ? trimmed : `https://${trimmed}`;
  if (/\s/.test(trimmed) || !URL.canParse(url) || !/^https?:/i.test(url))
    return { ok: false, reason: "Enter an address (0x…) or a website." };
  return { ok: true, which: { site: new URL(url).origin } };
}

export const nameOf = ({ payee, site }: DeniedPayee): string => payee ?? site ?? "";

export const denyPayee = (which: Which, note = ""): Promise<{ denied: DeniedPayee }> =>
  api.post("/api/owner/denied-payees", { ...which, note });

/** The order names the entry that it removes. */
export function allowAgain(options: {
  owner: string;
  denied: DeniedPayee;
  network: NetworkInfo | undefined;
}): Promise<unknown> {
  const { owner, denied, network } = options;
  // An owner's orders that concern no agent are signed for the first network.
  if (!network) throw new Error("The network is not known yet. Try again in a moment.");
  const { chainId } = network;
  const payee = nameOf(denied);
  const kind = (order: object) =>
    allowAgainToSign(order as AllowPayeeAgainOrder, { owner, payee }, chainId);
  return signed(
    {
      kind,
      title: "Remove from Never pay",
      chainId,
      effect: "Your agents can pay it again, as far as the rules of each allow.",
      read(order) {
        kind(order);
        return Promise.resolve({
          changes: [{ what: payee, before: "never pay", after: "as the rules allow" }],
          hasUnseenChanges: false,
        });
      },
    },
    (authorization) =>
      api.post("/api/owner/denied-payees/remove", {
        ...(denied.payee === null ? { site: payee } : { payee }),
        ...authorization,
      }),
  );
}
