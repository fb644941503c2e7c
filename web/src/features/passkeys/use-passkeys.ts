import { useMutation } from "@tanstack/react-query";
import type { PasskeysOrder, PayoutAddressOrder } from "../../../../packages/rules/src/orders.ts";
import { api } from "../../lib/api.ts";
import { signed } from "../../lib/orders/signed.ts";
import type { SignatureRequest } from "../../lib/orders/signing.ts";
import { passkeysToSign, payoutToSign } from "../../lib/orders/to-sign.ts";
import { invalidate } from "../../lib/query-keys.ts";
import { createPasskey } from "../../lib/webauthn.ts";
import type { Passkey, PasskeyOptions, Passkeys, Payout } from "../../lib/wire.ts";
import { useNetwork } from "../../shared/info.ts";
import { useOwner } from "../../shared/session/session-context.ts";

/** An owner's orders that concern no agent are signed for the first network. */
function useChainId(): () => number {
  const network = useNetwork();
  return () => {
    if (!network) throw new Error("The network is not known yet. Try again in a moment.");
    return network.chainId;
  };
}

/** Makes a passkey on this device. It signs nothing yet. */
export const useOfferPasskey = () =>
  useMutation({
    mutationFn: async (name: string) => {
      const { nonce, options } = await api.get<PasskeyOptions>("/api/passkeys/options");
      const credential = await createPasskey(options, `Purser, ${name}`);
      await api.post<Passkeys>("/api/passkeys", { nonce, name, credential });
    },
    onSettled: invalidate.afterPasskeys,
  });

const namesOf = (passkeys: readonly Passkey[]): string =>
  passkeys.map(({ name }) => name).join(", ") || "none";

/** Signs the list of passkeys that may sign from now on. */
export function useSignPasskeys({ version, passkeys }: Passkeys) {
  const { address: owner } = useOwner();
  const chainIdOf = useChainId();
  return useMutation({
    mutationFn: (listed: readonly Passkey[]) => {
      const chainId = chainIdOf();
      const wanted = {
        owner,
        version: version + 1,
        passkeys: listed.map(({ name, x, y }) => ({ name, x, y })),
      };
      const kind = (order: object) => passkeysToSign(order as PasskeysOrder, wanted, chainId);
      const request: SignatureRequest = {
        kind,
        title: "Change your passkeys",
        chainId,
        effect: "Signing is free. From then on exactly these passkeys sign for your account.",
        isOnScreen: true,
        read(order) {
          kind(order);
          const before = namesOf(passkeys.filter(({ status }) => status === "active"));
          const after = namesOf(listed);
          return Promise.resolve({
            changes: [{ what: "Passkeys that sign", before, after }],
            hasUnseenChanges: false,
          });
        },
      };
      const ids = listed.map(({ id }) => id);
      return signed(request, (authorization) =>
        api.put<Passkeys>("/api/passkeys", { ids, ...authorization }),
      );
    },
    onSettled: invalidate.afterPasskeys,
  });
}

/** Names the payout address. */
export function useNamePayout(current: string | null) {
  const { address: owner } = useOwner();
  const chainIdOf = useChainId();
  return useMutation({
    mutationFn: (address: string) => {
      const chainId = chainIdOf();
      const kind = (order: object) =>
        payoutToSign(order as PayoutAddressOrder, { owner, payout: address }, chainId);
      const request: SignatureRequest = {
        kind,
        title: "Name your payout address",
        chainId,
        effect: "Signing is free and moves no money.",
        isOnScreen: true,
        read(order) {
          kind(order);
          return Promise.resolve({
            changes: [{ what: "Payout address", before: current ?? "", after: address }],
            hasUnseenChanges: false,
          });
        },
      };
      return signed(request, (authorization) =>
        api.put<Payout>("/api/payout", { address, ...authorization }),
      );
    },
    onSettled: invalidate.afterPayout,
  });
}
