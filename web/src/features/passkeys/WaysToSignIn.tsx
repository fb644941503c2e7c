import { Badge, Group, Stack, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note, Section } from "../../components/Layout.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { nameDevice } from "../../lib/device.ts";
import { passkeyObstacle } from "../../lib/webauthn.ts";
import type { Passkey, Passkeys } from "../../lib/wire.ts";
import { useInfo } from "../../shared/info.ts";
import { passkeysQuery } from "../../shared/session/api.ts";
import { useRights } from "../../shared/session/OwnerOnly.tsx";
import { NoPasskeys } from "../../shared/session/PasskeySignIn.tsx";
import { hasWallet, useOwner } from "../../shared/session/session-context.ts";
import { useOfferPasskey, useSignPasskeys } from "./use-passkeys.ts";

/** The owner's wallet, and the passkeys that sign for the account. */
export function WaysToSignIn(): ReactNode {
  const session = useOwner();
  const passkeys = useQuery(passkeysQuery);
  return (
    <Section
      title="Ways to sign in"
      hint={
        hasWallet(session)
          ? "Your wallet, and passkeys that sign your orders too. A passkey withdraws only to your wallet."
          : "Your passkeys sign in, and sign your orders. Keep at least two, on different devices."
      }
    >
      <Stack>
        {hasWallet(session) && <Address value={session.address} full />}
        <QueryStatus query={passkeys} what="passkeys" failed="Your passkeys could not be loaded">
          <Skeleton shape="row" count={2} />
        </QueryStatus>
        {passkeys.data && <PasskeyList all={passkeys.data} />}
      </Stack>
    </Section>
  );
}

function PasskeyList({ all }: { all: Passkeys }): ReactNode {
  const isRecovery = useRights() !== "all";
  const info = useInfo();
  const sign = useSignPasskeys(all);
  const [pressed, setPressed] = useState<string>();
  const active = all.passkeys.filter(({ status }) => status === "active");
  const shown = all.passkeys.filter(({ status }) => status !== "removed");
  const obstacle = info && passkeyObstacle(info);
  const change = (passkey: Passkey): void => {
    if (sign.isPending) return;
    setPressed(passkey.id);
    const isIn = active.includes(passkey);
    sign.mutate(isIn ? active.filter((one) => one !== passkey) : [...active, passkey]);
  };
  return (
    <>
      {shown.length > 0 && (
        <ul aria-label="Passkeys">
          {shown.map((passkey) => (
            <Row
              key={passkey.id}
              passkey={passkey}
              canChange={
                !isRecovery &&
                (passkey.status !== "active" || active.length > 1 || all.signsWith !== "passkeys")
              }
              isPending={sign.isPending && pressed === passkey.id}
              onChange={() => {
                change(passkey);
              }}
            />
          ))}
        </ul>
      )}
      {sign.isError && <ErrorNotice title="Your passkeys were not changed" error={sign.error} />}
      {!isRecovery && (obstacle ? <NoPasskeys obstacle={obstacle} /> : <AddPasskey />)}
    </>
  );
}

interface RowProps {
  passkey: Passkey;
  canChange: boolean;
  isPending: boolean;
  onChange: () => void;
}

function Row({ passkey, canChange, isPending, onChange }: RowProps): ReactNode {
  const { name, status, usedAt, createdAt } = passkey;
  const isNew = status === "offered";
  return (
    <li className="list-row">
      <Group justify="space-between" gap="md">
        <div>
          <Text component="div" fw={550}>
            {name} {isNew && <Badge color="yellow">Not signed yet</Badge>}
          </Text>
          <Text c="dimmed" size="sm">
            {isNew ? (
              "Made on a device. It signs nothing before you sign the list with it."
            ) : (
              <>
                {usedAt === null ? (
                  "never used"
                ) : (
                  <>
                    last used <TimeAgo iso={usedAt} />
                  </>
                )}{" "}
                · added <TimeAgo iso={createdAt} />
              </>
            )}
          </Text>
        </div>
        {canChange && (
          <PendingButton
            size="xs"
            variant={isNew ? "filled" : undefined}
            pending={isPending && "Signing…"}
            onClick={onChange}
          >
            {isNew ? "Sign" : "Remove"}
            <span className="sr-only"> {name}</span>
          </PendingButton>
        )}
      </Group>
    </li>
  );
}

/** The first press makes it, the second signs the list with it. */
function AddPasskey(): ReactNode {
  const [name, setName] = useState(() => nameDevice(navigator.userAgent));
  const offer = useOfferPasskey();
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (!offer.isPending) offer.mutate(name.trim() || "Passkey");
      }}
    >
      <Stack gap="sm">
        <TextInput
          label="Name of another passkey"
          description="On this device, on your phone, or on a security key: the browser asks where."
          maxLength={60}
          value={name}
          onChange={(event) => {
            setName(event.currentTarget.value);
          }}
        />
        {offer.isError && <ErrorNotice title="The passkey was not made" error={offer.error} />}
        {offer.isSuccess && (
          <Note>
            <p role="status">Made. Now sign the list with it above.</p>
          </Note>
        )}
        <Group>
          <PendingButton type="submit" pending={offer.isPending && "Confirm on your device…"}>
            Add a passkey
          </PendingButton>
        </Group>
      </Stack>
    </form>
  );
}
