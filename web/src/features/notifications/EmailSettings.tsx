import { TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation, useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Badge } from "../../components/Badge.tsx";
import { Button } from "../../components/Button.tsx";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Muted, Note, Row, Section, Stack } from "../../components/Layout.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Segmented } from "../../components/Segmented.tsx";
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
    <Stack gap={5}>
      <Section
        title="E-mail address"
        hint="Purser sends e-mail to one address, after you confirm it."
        actions={email && <State email={email} />}
      >
        <QueryStatus query={query} what="e-mail settings" failed="E-mail could not be loaded">
          <Skeleton shape="row" count={2} />
        </QueryStatus>
        {email && !email.available && (
          <Note tone="warn">
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
  if (email.stopped === "unsubscribed") return <Badge tone="warn">Unsubscribed</Badge>;
  if (email.stopped !== null) return <Badge tone="bad">Switched off</Badge>;
  if (email.confirmedAt === null) return <Badge tone="warn">Not confirmed</Badge>;
  return <Badge tone="ok">Confirmed</Badge>;
}

/** Why no email is sent, and how to fix it. */
function Trouble({ email }: { email: Email }): ReactNode {
  const { stopped, lastError, confirmedAt, address, pendingAddress } = email;
  const waiting = pendingAddress ?? (confirmedAt === null ? address : null);
  return (
    <>
      {stopped === "unsubscribed" && (
        <Note tone="warn">
          Purser stopped sending because of an unsubscribe link in a mail. Save the address again to
          restart.
        </Note>
      )}
      {stopped === "refused" && (
        <Note tone="warn">
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
      {lastError !== null && <Note tone="warn">Last error of the mail server: {lastError}</Note>}
    </>
  );
}

function AddressForm({ email }: { email: Email }): ReactNode {
  const known = email.pendingAddress ?? email.address ?? "";
  const [address, setAddress] = useState(known);
  const [isRemoving, setRemoving] = useState(false);
  const save = useMutation({
    mutationFn: () => setEmail({ address: address.trim() }),
    onSettled: invalidate.afterEmail,
  });
  const remove = useMutation({
    mutationFn: removeEmail,
    onSuccess: () => {
      notifications.show({ message: "Address removed." });
      setRemoving(false);
    },
    onSettled: invalidate.afterEmail,
  });
  const isSame = address.trim() === known;
  const isSettled = isSame && email.pendingAddress === null && email.confirmedAt !== null;
  return (
    <form
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        if (!save.isPending) save.mutate();
      }}
    >
      <Stack gap={4}>
        <Trouble email={email} />
        <div className={styles.narrow}>
          <TextInput
            label="Address"
            type="email"
            autoComplete="email"
            placeholder="you@example.com"
            value={address}
            disabled={!email.available}
            onChange={(event) => {
              setAddress(event.currentTarget.value);
              save.reset();
            }}
          />
        </div>
        {save.error && <ErrorNotice title="The address was not saved" error={save.error} />}
        <Row>
          <Button
            type="submit"
            variant={isSame && known !== "" ? "secondary" : "primary"}
            disabled={
              !email.available || address.trim() === "" || (isSettled && email.stopped === null)
            }
            pending={save.isPending && "Saving…"}
          >
            {isSame && known !== "" && !isSettled
              ? "Send the confirmation again"
              : "Save and confirm"}
          </Button>
          {email.address !== null && (
            <Button
              onClick={() => {
                setRemoving(true);
              }}
            >
              Remove
            </Button>
          )}
        </Row>
      </Stack>
      <ConfirmDialog
        opened={isRemoving}
        title="Remove the address"
        confirm="Remove"
        pending={remove.isPending && "Removing…"}
        failed="The address was not removed"
        error={remove.error}
        onCancel={() => {
          setRemoving(false);
        }}
        onConfirm={() => {
          remove.mutate();
        }}
      >
        Purser sends one last mail to {email.address} to confirm the removal, and nothing after it.
      </ConfirmDialog>
    </form>
  );
}

const DIGESTS = [
  { value: "hourly", label: "Every hour" },
  { value: "daily", label: "Every day" },
  { value: "off", label: "Off" },
] as const;

function WhatIsSent({ email }: { email: Email }): ReactNode {
  const [digest, setDigest] = useState(email.digest as (typeof DIGESTS)[number]["value"]);
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
      <Stack gap={5}>
        <Stack gap={2}>
          <p className={styles.legend}>Summary of all events</p>
          <div>
            <Segmented label="Digest" value={digest} onChange={setDigest} options={DIGESTS} />
          </div>
          <Muted>
            {digest === "daily" && "One mail a day at 07:00 UTC, if there is news."}
            {digest === "hourly" && "One mail each full hour, if there is news."}
            {digest === "off" && "Only the alerts chosen below are sent."}
          </Muted>
        </Stack>
        <Stack gap={3}>
          <div>
            <p className={styles.legend}>Immediate alerts</p>
            <Muted>
              Sent within a minute, at most 4 mails an hour. Limits are reported when they are
              reached, sign-ins when they come from a new device.
            </Muted>
          </div>
          <TypeChoice
            label="Immediate alerts"
            names={URGENT_NAMES}
            chosen={urgent}
            onChange={setUrgent}
          />
        </Stack>
        {save.error && <ErrorNotice title="The settings were not saved" error={save.error} />}
        <Row>
          <Button
            variant="primary"
            disabled={!isChanged}
            pending={save.isPending && "Saving…"}
            onClick={() => {
              save.mutate();
            }}
          >
            Save settings
          </Button>
        </Row>
      </Stack>
    </Section>
  );
}
