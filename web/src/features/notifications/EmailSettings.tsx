import { Badge, Button, SegmentedControl, Stack, Text, TextInput } from "@mantine/core";
import { useDisclosure, useInputState } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { useMutation, useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { Note, Section } from "../../components/Layout.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { RequestForm } from "../../components/RequestForm.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { Email } from "../../lib/wire.ts";
import { emailQuery, removeEmail, setEmail } from "./api.ts";
import styles from "./Notifications.module.css";
import { TypeChoice } from "./TypeChoice.tsx";
import { URGENT_NAMES } from "./words.ts";

export function EmailSettings(): ReactNode {
  const query = useQuery(emailQuery);
  const email = query.data;
  return (
    <Stack gap="lg">
      <Section
        title="E-mail address"
        hint="Purser sends e-mail to one address, after you confirm it."
        actions={email && <State email={email} />}
      >
        <QueryStatus query={query} what="e-mail settings" failed="E-mail could not be loaded">
          <Skeleton shape="row" count={2} />
        </QueryStatus>
        {email && !email.available && (
          <Note color="yellow">
            This service is not set up to send e-mail. Use a webhook, or ask the operator to set
            SMTP_URL.
          </Note>
        )}
        {email && (email.available || email.address !== null) && (
          <AddressForm key={email.address} email={email} />
        )}
      </Section>
      {email?.available === true && email.address !== null && (
        <WhatIsSent key={`${email.digest}${email.urgent.join()}`} email={email} />
      )}
    </Stack>
  );
}

function State({ email }: { email: Email }): ReactNode {
  if (email.address === null) return null;
  if (email.stopped === "unsubscribed") return <Badge color="yellow">Unsubscribed</Badge>;
  if (email.stopped !== null) return <Badge color="red">Switched off</Badge>;
  if (email.confirmedAt === null) return <Badge color="yellow">Not confirmed</Badge>;
  return <Badge color="green">Confirmed</Badge>;
}

/** Why no email is sent, and how to fix it. */
function Trouble({ email }: { email: Email }): ReactNode {
  const { stopped, lastError, confirmedAt, address, pendingAddress } = email;
  const waiting = pendingAddress ?? (confirmedAt === null ? address : null);
  return (
    <>
      {stopped === "unsubscribed" && (
        <Note color="yellow">
          Purser stopped sending because of an unsubscribe link in a mail. Save the address again to
          restart.
        </Note>
      )}
      {stopped === "refused" && (
        <Note color="yellow">
          Purser stopped sending because the mailbox refused our mails for days. Save an address
          that accepts mail.
        </Note>
      )}
      {stopped === null && waiting !== null && (
        <Note>
          We sent a mail to <strong>{waiting}</strong>. Open the link in it and press Confirm. The
          link is valid for a day.
          {pendingAddress !== null && ` Until then mails go to ${address ?? ""}.`}
        </Note>
      )}
      {lastError !== null && <Note color="yellow">Last error of the mail server: {lastError}</Note>}
    </>
  );
}

function AddressForm({ email }: { email: Email }): ReactNode {
  const known = email.pendingAddress ?? email.address ?? "";
  const [address, setAddress] = useInputState(known);
  const [isRemoving, removing] = useDisclosure();
  const save = useMutation({
    mutationFn: () => setEmail({ address: address.trim() }),
    onSettled: invalidate.afterEmail,
  });
  const remove = useMutation({
    mutationFn: removeEmail,
    onSuccess: () => {
      notifications.show({ message: "Address removed." });
      removing.close();
    },
    onSettled: invalidate.afterEmail,
  });
  const isSame = address.trim() === known;
  const isSettled = isSame && email.pendingAddress === null && email.confirmedAt !== null;
  return (
    <>
      <RequestForm
        mutation={save}
        failed="The address was not saved"
        confirm={
          isSame && known !== "" && !isSettled ? "Send the confirmation again" : "Save and confirm"
        }
        pending="Saving…"
        variant={isSame && known !== "" ? "default" : "filled"}
        disabled={
          !email.available || address.trim() === "" || (isSettled && email.stopped === null)
        }
        more={email.address !== null && <Button onClick={removing.open}>Remove</Button>}
      >
        <Trouble email={email} />
        <TextInput
          label="Address"
          type="email"
          autoComplete="email"
          placeholder="you@example.com"
          maw={560}
          value={address}
          disabled={!email.available}
          onChange={(event) => {
            setAddress(event);
            save.reset();
          }}
        />
      </RequestForm>
      <ConfirmDialog
        opened={isRemoving}
        title="Remove the address"
        mutation={remove}
        failed="The address was not removed"
        confirm="Remove"
        pending="Removing…"
        onCancel={removing.close}
      >
        Purser sends one last mail to {email.address} to confirm the removal, and nothing after it.
      </ConfirmDialog>
    </>
  );
}

const DIGESTS = [
  { value: "hourly", label: "Every hour" },
  { value: "daily", label: "Every day" },
  { value: "off", label: "Off" },
];

function WhatIsSent({ email }: { email: Email }): ReactNode {
  const [digest, setDigest] = useState<string>(email.digest);
  const [urgent, setUrgent] = useState(email.urgent);
  const save = useMutation({
    mutationFn: () =>
      setEmail({ address: email.pendingAddress ?? email.address ?? "", digest, urgent }),
    onSuccess: () => {
      notifications.show({ message: "Saved." });
    },
    onSettled: invalidate.afterEmail,
  });
  const isChanged =
    digest !== email.digest || urgent.toSorted().join() !== email.urgent.toSorted().join();
  return (
    <Section title="E-mails to send" hint="Purser never sends one mail per payment.">
      <RequestForm
        mutation={save}
        failed="The settings were not saved"
        confirm="Save settings"
        pending="Saving…"
        disabled={!isChanged}
      >
        <Stack gap="xs">
          <p className={styles.legend}>Summary of all events</p>
          <SegmentedControl
            aria-label="Digest"
            value={digest}
            onChange={setDigest}
            data={DIGESTS}
          />
          <Text span c="dimmed" size="sm">
            {digest === "daily" && "One mail a day at 07:00 UTC, if there is news."}
            {digest === "hourly" && "One mail each full hour, if there is news."}
            {digest === "off" && "Only the alerts chosen below are sent."}
          </Text>
        </Stack>
        <Stack gap="sm">
          <div>
            <p className={styles.legend}>Immediate alerts</p>
            <Text span c="dimmed" size="sm">
              Sent within a minute, at most 4 mails an hour. Limits are reported when they are
              reached, sign-ins when they come from a new device.
            </Text>
          </div>
          <TypeChoice
            label="Immediate alerts"
            names={URGENT_NAMES}
            chosen={urgent}
            onChange={setUrgent}
          />
        </Stack>
      </RequestForm>
    </Section>
  );
}
