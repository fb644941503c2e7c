import { Box, Button, Stack } from "@mantine/core";
import { Fragment, type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { Note } from "../../components/Layout.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { isSameAddress } from "../../lib/address.ts";
import { useSigning } from "../../lib/orders/signing.ts";
import { signerOf } from "../../lib/session.ts";
import { useConnection } from "../../lib/wallet/connection.ts";
import type { Session } from "../../lib/wire.ts";
import { useKnownSecond } from "./api.ts";
import { OtherAccount } from "./OtherAccount.tsx";
import { hasWallet, teamOf, useSession } from "./session-context.ts";
import { SignIn } from "./SignIn.tsx";
import { SignInCard } from "./SignInCard.tsx";
import { useLeave } from "./use-leave.ts";

/**
 * The owner's screens require a session. The URL is kept, so that after signing in the user sees the
 * requested page.
 */
export function SessionGate({ children }: { children: ReactNode }): ReactNode {
  const { session, error, retry } = useSession();
  if (session === undefined)
    return (
      <QueryStatus
        query={{ isPending: true, error, refetch: retry }}
        what="your session"
        failed="Your session could not be checked"
      >
        <Skeleton shape="title" />
        <Skeleton shape="row" count={4} />
      </QueryStatus>
    );
  if (session === null) return <SignInPage />;
  return <AccountGuard>{children}</AccountGuard>;
}

/**
 * Wraps every screen, public ones too: an owner's data disappears when the wallet switches to another
 * account, and an ended session is renewed without losing the screen.
 */
export function AccountGuard({ children }: { children: ReactNode }): ReactNode {
  const { session, isLost } = useSession();
  const connection = useConnection();
  // During a signature the dialog names the required account, so the form keeps its content.
  const isSigning = useSigning() !== null;
  const leave = useLeave();
  // Both wallets sign a change of the owner address, one after the other, on the same screen.
  const named = useKnownSecond();
  const userNumber = useUserNumber(session && signerOf(session) + session.address);
  const wallets = session ? [signerOf(session), named] : [];
  const team = session && teamOf(session);
  const isKnown = wallets.some((one) => isSameAddress(connection?.address, one));
  if (session && connection !== null && !isKnown && !isLost && !isSigning)
    return <OtherAccount session={session} connected={connection.address} />;
  return (
    <Fragment key={userNumber}>
      {session && session.second !== null && <SecondWalletNote session={session} />}
      {children}
      {session && (
        <Dialog
          opened={isLost}
          onClose={() => {}}
          closable={false}
          size="sm"
          title="Your session has ended"
        >
          <Stack>
            <p>Sign in again to continue. Your input on this screen is kept.</p>
            {team && (
              <p>
                You acted for {team.name}. If an admin removed you from it, you return to your own
                account.
              </p>
            )}
            <SignIn ended={session} />
            <Button variant="subtle" onClick={() => void leave()}>
              Stay signed out
            </Button>
          </Stack>
        </Dialog>
      )}
    </Fragment>
  );
}

/**
 * A number that changes with the signed-in user, so that state of the previous user is discarded. When a user
 * signs in on a public screen the number stays: what was typed or started there belongs to the same person.
 */
function useUserNumber(who: string | null | undefined): number {
  const [seen, setSeen] = useState({ who, userNumber: 0 });
  if (who === undefined || who === seen.who) return seen.userNumber;
  const userNumber = seen.userNumber + (seen.who === undefined ? 0 : 1);
  setSeen({ who, userNumber });
  return userNumber;
}

/** Shown on every screen, because a recovery wallet may do less than the owner. */
function SecondWalletNote({ session }: { session: Session }): ReactNode {
  return (
    <Box component="aside" mb="lg" aria-label="Recovery wallet">
      <Note color="yellow">
        <p>
          <strong>You are signed in as the recovery wallet.</strong> You can only pause agents,
          tighten rules and withdraw to{" "}
          {hasWallet(session) ? (
            <Address value={session.address} copy={false} />
          ) : (
            "the owner's payout address"
          )}
          .
        </p>
      </Note>
    </Box>
  );
}

const SignInPage = (): ReactNode => (
  <SignInCard
    documentTitle="Sign in"
    title="Sign in to Purser"
    lead="Your passkey or wallet owns the agents that you create. Only its signature lets them pay, and withdraws their money."
  >
    <SignIn />
  </SignInCard>
);
