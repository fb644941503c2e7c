import { Button, Group } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Link } from "react-router";
import { Note } from "../components/Layout.tsx";
import { firstStepsQuery } from "../features/first-steps/api.ts";
import { passkeysQuery, payoutQuery, recoveryQuery } from "../shared/session/api.ts";
import { useRights } from "../shared/session/OwnerOnly.tsx";
import { hasWallet, useOwner } from "../shared/session/session-context.ts";

const ASKED = {
  spare: {
    why: "If you lose this passkey, you lose access to your agents.",
    what: "Add a second passkey or a recovery wallet",
  },
  payout: {
    why: "Without a payout address you cannot withdraw.",
    what: "Name a payout address",
  },
  wayBack: {
    why: "If you lose your wallet, nobody can sign in its place.",
    what: "Name a recovery wallet or add a passkey",
  },
} as const;
type Asked = keyof typeof ASKED;

interface AskForProps {
  /** In the settings they stay until they are done, elsewhere they can be dismissed on this device. */
  place: "settings" | "elsewhere";
}

/** What an owner has not done yet, and needs when a device or a wallet is lost. */
export function AskFor({ place }: AskForProps): ReactNode {
  const session = useOwner();
  if (useRights() !== "all") return null;
  if (session.member) return <OfTeam place={place} />;
  return hasWallet(session) ? <OfWallet place={place} /> : <OfPasskeys place={place} />;
}

function OfPasskeys({ place }: AskForProps): ReactNode {
  const passkeys = useQuery(passkeysQuery).data;
  const payout = useQuery(payoutQuery).data;
  const recovery = useQuery(recoveryQuery).data;
  if (!passkeys || !payout || !recovery) return null;
  const active = passkeys.passkeys.filter(({ status }) => status === "active");
  const missing: Asked[] = [];
  if (active.length < 2 && recovery.second === null) missing.push("spare");
  if (payout.address === null && payout.next === null) missing.push("payout");
  return <Missing missing={missing} place={place} />;
}

/** A team has no wallet of its own either. */
function OfTeam({ place }: AskForProps): ReactNode {
  const payout = useQuery(payoutQuery).data;
  const isMissing = payout?.address === null && payout.next === null;
  return <Missing missing={isMissing ? ["payout"] : []} place={place} />;
}

/** The first steps name it until the first paid call; after that it is asked for here. */
function OfWallet({ place }: AskForProps): ReactNode {
  const steps = useQuery(firstStepsQuery).data?.steps;
  return <Missing missing={steps?.paid && !steps.recovery ? ["wayBack"] : []} place={place} />;
}

function Missing({ missing, place }: AskForProps & { missing: Asked[] }): ReactNode {
  const owner = useOwner().address;
  const canDismiss = place === "elsewhere";
  const [dismissed, setDismissed] = useState(() => recall(owner));
  const dismiss = (what: Asked): void => {
    const next = [...dismissed, what];
    remember(owner, next);
    setDismissed(next);
  };
  return missing
    .filter((what) => !(canDismiss && dismissed.includes(what)))
    .map((what) => (
      <Note key={what} color="yellow">
        <Group justify="space-between" gap="sm">
          <p>
            <strong>{ASKED[what].what}.</strong> {ASKED[what].why}
          </p>
          {canDismiss && (
            <Group gap="xs">
              <Button component={Link} to="/settings" size="xs">
                Do it now
              </Button>
              <Button
                size="xs"
                variant="subtle"
                onClick={() => {
                  dismiss(what);
                }}
              >
                Later<span className="sr-only"> {ASKED[what].what}</span>
              </Button>
            </Group>
          )}
        </Group>
      </Note>
    ));
}

const slot = (owner: string): string => `purser-asked:${owner.toLowerCase()}`;

function recall(owner: string): string[] {
  try {
    return (localStorage.getItem(slot(owner)) ?? "").split(" ");
  } catch {
    return [];
  }
}

function remember(owner: string, dismissed: readonly string[]): void {
  try {
    localStorage.setItem(slot(owner), dismissed.join(" ").trim());
  } catch {
    // A browser without storage asks again.
  }
}
