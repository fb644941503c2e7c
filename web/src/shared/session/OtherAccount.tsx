import { Button, Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { signerOf } from "../../lib/session.ts";
import { disconnect } from "../../lib/wallet/connection.ts";
import type { Session } from "../../lib/wire.ts";
import { SignIn } from "./SignIn.tsx";
import { SignInCard } from "./SignInCard.tsx";
import { useLeave } from "./use-leave.ts";

interface OtherAccountProps {
  session: Session;
  /** The address the wallet shows now. */
  connected: string;
}

/** Shown when the wallet switched to another account: the first account's data disappears at once. */
export function OtherAccount({ session, connected }: OtherAccountProps): ReactNode {
  const leave = useLeave();
  return (
    <SignInCard
      documentTitle="Account changed"
      title="The account in your wallet changed"
      lead="You are signed in with one account, and your wallet now uses another. Choose which one to use."
    >
      <Stack>
        <div>
          <p>
            Signed in: <Address value={signerOf(session)} copy={false} />
          </p>
          <p>
            In the wallet: <Address value={connected} copy={false} />
          </p>
        </div>
        <SignIn />
        <Button fullWidth onClick={disconnect}>
          Stay signed in as before
        </Button>
        <Button fullWidth onClick={() => void leave()}>
          Sign out
        </Button>
      </Stack>
    </SignInCard>
  );
}
