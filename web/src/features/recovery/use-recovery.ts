import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import type { MoveOwnerOrder, SecondWalletOrder } from "../../../../packages/rules/src/orders.ts";
import { api } from "../../lib/api.ts";
import { signed } from "../../lib/orders/signed.ts";
import type { SignatureRequest, Signer } from "../../lib/orders/signing.ts";
import { moveToSign, secondWalletToSign } from "../../lib/orders/to-sign.ts";
import { invalidate } from "../../lib/query-keys.ts";
import { signerOf } from "../../lib/session.ts";
import type { Recovery } from "../../lib/wire.ts";
import { useOwner } from "../../shared/session/session-context.ts";
import { useNetwork } from "../../shared/info.ts";

const ownerSigner = (address: string): Signer => ({
  address,
  description: "the owner's wallet",
  signatureField: "signature",
});
const secondSigner = (address: string): Signer => ({
  address,
  description: "the recovery wallet",
  signatureField: "secondSignature",
});

function chainOf(network: ReturnType<typeof useNetwork>): number {
  if (!network) throw new Error("The network is not known yet. Try again in a moment.");
  return network.chainId;
}

/** Sets or removes the recovery wallet. The wallet that is named signs first, which proves that it can. */
export function useNameSecond(owner: string, current: string | null) {
  const signer = signerOf(useOwner());
  // An owner's orders that concern no agent are signed for the first network.
  const network = useNetwork();
  return useMutation({
    mutationFn: (address: string | null) => {
      const chainId = chainOf(network);
      const kind = (order: object) =>
        secondWalletToSign(order as SecondWalletOrder, { owner, second: address }, chainId);
      const request: SignatureRequest = {
        kind,
        title: address === null ? "Revoke the recovery wallet" : "Add the recovery wallet",
        chainId,
        isOnScreen: true,
        ...(address !== null && { signers: [secondSigner(address), ownerSigner(signer)] }),
        read(order) {
          kind(order);
          const change = { before: current ?? "", after: address ?? "none" };
          return Promise.resolve({
            changes: [{ what: "Recovery wallet", ...change }],
            hasUnseenChanges: false,
          });
        },
      };
      return signed(request, (authorization) =>
        api.put<Recovery>("/api/recovery/second", { address, ...authorization }),
      );
    },
    onSuccess: () => invalidate.afterRecovery(),
  });
}

/** Makes the recovery wallet the owner: both wallets sign, and nothing changes before the second signature. */
export function useMove(owner: string, second: string) {
  const network = useNetwork();
  return useMutation({
    mutationFn: () => {
      const chainId = chainOf(network);
      const kind = (order: object) =>
        moveToSign(order as MoveOwnerOrder, { from: owner, to: second }, chainId);
      const request: SignatureRequest = {
        kind,
        title: "Make the recovery wallet the owner",
        chainId,
        effect: "All agents move and are paused. Their money does not move.",
        signers: [ownerSigner(owner), secondSigner(second)],
        read(order) {
          kind(order);
          return Promise.resolve({
            changes: [{ what: "Owner of all agents", before: owner, after: second }],
            hasUnseenChanges: false,
          });
        },
      };
      return signed(request, (authorization) =>
        api.post<{ agents: number; note: string }>("/api/recovery/move", authorization),
      );
    },
    onSuccess: ({ note }) => {
      // A toast, because it outlives this screen, which no longer belongs to the first wallet.
      const title = "The recovery wallet is now the owner";
      notifications.show({ title, message: note, autoClose: false });
      return invalidate.afterMove();
    },
  });
}
