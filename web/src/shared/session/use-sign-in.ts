import { useCallback, useState } from "react";
import { checkAddress } from "../../lib/address.ts";
import { isRejection, walletError } from "../../lib/wallet/provider.ts";
import type { Connection } from "../../lib/wallet/connection.ts";
import { signMessage, siweMessage } from "../../lib/wallet/siwe.ts";
import { serverNowMs } from "../../lib/clock.ts";
import { ApiError } from "../../lib/api.ts";
import { fetchNonce, verifySignIn } from "./api.ts";
import { useSession } from "./session-context.ts";

export type SignInState =
  | { step: "idle" }
  | { step: "preparing" }
  | { step: "signing" }
  | { step: "verifying" }
  | { step: "declined" }
  | { step: "failed"; error: unknown };

/**
 * Undefined for the wallet's own account; else the typed address of the owner whose recovery wallet this is.
 */
export type SecondOf = string | undefined;

/** The message is made when the user presses sign, so that its nonce is fresh. */
export function useSignIn(): {
  state: SignInState;
  signIn: (connection: Connection, chainId: number, secondOf: SecondOf) => Promise<void>;
} {
  const { onSignedIn } = useSession();
  const [state, setState] = useState<SignInState>({ step: "idle" });
  const signIn = useCallback(
    async (connection: Connection, chainId: number, secondOf: SecondOf) => {
      try {
        setState({ step: "preparing" });
        // Checked before signing, so that a mistyped owner address is reported here and not by the wallet.
        const owner = secondOf === undefined ? undefined : await ownerIn(secondOf);
        const { nonce } = await fetchNonce();
        const message = siweMessage({
          host: globalThis.location.host,
          origin: globalThis.location.origin,
          address: connection.address,
          chainId,
          nonce,
          nowMs: serverNowMs(),
        });
        setState({ step: "signing" });
        const signature = await signMessage(connection, message);
        setState({ step: "verifying" });
        await verifySignIn(message, signature, owner);
        await onSignedIn();
        setState({ step: "idle" });
      } catch (error) {
        if (isRejection(error)) setState({ step: "declined" });
        else
          setState({
            step: "failed",
            error:
              error instanceof ApiError || error instanceof NoOwner ? error : walletError(error),
          });
      }
    },
    [onSignedIn],
  );
  return { state, signIn };
}

class NoOwner extends Error {
  override readonly name = "NoOwner";
}

async function ownerIn(text: string): Promise<string> {
  const check = await checkAddress(text);
  if (!check.ok) throw new NoOwner(`The owner's address: ${check.reason}`);
  return check.address;
}
