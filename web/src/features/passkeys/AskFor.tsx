import { Button, Group } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Link } from "react-router";
import { Note } from "../../components/Layout.tsx";
import { passkeysQuery, payoutQuery, recoveryQuery } from "../../shared/session/api.ts";
import { useIsRecovery } from "../../shared/session/OwnerOnly.tsx";
import { hasWallet, useOwner } from "../../shared/session/session-context.ts";

const ASKED = {
  spare: {
    why: "If you lose this passkey, you lose access to your agents.",
    what: "Add a second passkey or a recovery wallet",
  },
  payout: {
    why: "Without a payout address you cannot withdraw.",
    what: "Name a payout address",
  },
} as const;
type Asked = keyof typeof ASKED;

/**
 * What an owner without a wallet has not done yet. `place`: in the settings they stay until they are done, elsewhere they can be
 * dismissed on this device.
 */
export function AskFor({ place }: { place: "settings" | "elsewhere" }): ReactNode {
  const session = useOwner();
  const isRecovery = useIsRecovery();
  return hasWallet(session) || isRecovery ? null : (
    <Missing owner={session.address} canDismiss={place === "elsewhere"} />
  );
}

function Missing({ owner, canDismiss }: { owner: string; canDismiss: boolean }): ReactNode {
  const passkeys = useQuery(passkeysQuery).data;
  const payout = useQuery(payoutQuery).data;
  const recovery = useQuery(recoveryQuery).data;
  const [dismissed, setDismissed] = useState(() => recall(owner));
  if (!passkeys || !payout || !recovery) return null;
  const active = passkeys.passkeys.filter(({ status }) => status === "active");
  const isMissing: Record<Asked, boolean> = {
    spare: active.length < 2 && recovery.second === null,
    payout: payout.address === null && payout.next === null,
  };
  const dismiss = (what: Asked): void => {
    const next = [...dismissed, what];
    remember(owner, next);
    setDismissed(next);
  };
  return (Object.keys(ASKED) as Asked[])
    .filter((what) => isMissing[what] && !(canDismiss && dismissed.includes(what)))
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
