import { SegmentedControl, Stack, Text, TextInput } from "@mantine/core";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { hasWallet, useOwner, whose } from "../../shared/session/session-context.ts";
import type { DraftErrors, WithdrawalDraft } from "./draft.ts";

interface TargetFieldsProps {
  owner: string;
  draft: WithdrawalDraft;
  errors: DraftErrors;
  onChange: (change: Partial<WithdrawalDraft>) => void;
}

/** The owner's own wallet, or another address whose last characters must be typed again. */
export function TargetFields({ owner, draft, errors, onChange }: TargetFieldsProps): ReactNode {
  const session = useOwner();
  const isRecovery = session.second !== null;
  // Custody refuses other targets: a recovery wallet, a passkey and a team may withdraw to the owner only.
  if (isRecovery || session.signedInWith === "passkey" || !hasWallet(session))
    return (
      <p>
        <Text span c="dimmed" size="sm">
          Goes to {whose(session)} {hasWallet(session) ? "wallet" : "payout address"}
        </Text>{" "}
        <Address value={owner} copy={false} />
        {!isRecovery && hasWallet(session) && (
          <Text c="dimmed" size="sm">
            To withdraw to another address, sign in with your wallet.
          </Text>
        )}
      </p>
    );
  return (
    <>
      <SegmentedControl
        aria-label="Withdraw to"
        value={draft.target}
        onChange={(target: WithdrawalDraft["target"]) => {
          onChange({ target });
        }}
        data={[
          { value: "owner", label: "To my wallet" },
          { value: "other", label: "Another address" },
        ]}
      />
      {draft.target === "owner" ? (
        <p>
          <Text span c="dimmed" size="sm">
            Goes to
          </Text>{" "}
          <Address value={owner} copy={false} />
        </p>
      ) : (
        <Stack gap="sm">
          <TextInput
            label="Address"
            placeholder="0x…"
            value={draft.to}
            error={errors.to}
            onChange={(event) => {
              onChange({ to: event.currentTarget.value });
            }}
          />
          <TextInput
            label="Type its last 6 characters"
            description="Read them from the source of the address, not from the field above. A transfer cannot be undone."
            value={draft.confirmation}
            error={errors.confirmation}
            onChange={(event) => {
              onChange({ confirmation: event.currentTarget.value });
            }}
          />
        </Stack>
      )}
    </>
  );
}
