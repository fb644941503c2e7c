import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { useLocation, useNavigate } from "react-router";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note, Row, Section, Stack } from "../../components/Layout.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import { confirmEmail, unsubscribe } from "./api.ts";

/** The secret is in the URL's fragment, which browsers do not send to servers. */
function useSecretOfLink(name: string): string | null {
  return new URLSearchParams(useLocation().hash.slice(1)).get(name);
}

/** Opening the emailed link does not confirm the address; the button does. */
export function ConfirmEmail(): ReactNode {
  const token = useSecretOfLink("confirm");
  const navigate = useNavigate();
  const [isDone, setDone] = useState(false);
  const confirm = useMutation({
    mutationFn: confirmEmail,
    onSuccess: () => {
      setDone(true);
      // A used link is useless, so "back" must not lead to it.
      void navigate("/notifications/email", { replace: true });
    },
    onSettled: invalidate.afterEmail,
  });
  if (isDone)
    return (
      <Note tone="ok">
        <p role="status">Your address is confirmed. Purser sends the e-mails chosen below to it.</p>
      </Note>
    );
  if (token === null) return null;
  return (
    <Section title="Confirm your e-mail address">
      <Stack gap={4}>
        <p>Press the button to confirm this address. Purser sends nothing to it before that.</p>
        {confirm.error && (
          <ErrorNotice title="The address was not confirmed" error={confirm.error} />
        )}
        <Row>
          <Button
            variant="primary"
            pending={confirm.isPending && "Confirming…"}
            onClick={() => {
              confirm.mutate(token);
            }}
          >
            Confirm this address
          </Button>
        </Row>
      </Stack>
    </Section>
  );
}

/** For every reader of the mailbox, signed in or not. */
export function Unsubscribe(): ReactNode {
  const token = useSecretOfLink("token");
  const stop = useMutation({ mutationFn: unsubscribe });
  if (stop.isSuccess)
    return (
      <Note tone="ok">
        <p role="status">
          Purser sends nothing more to this address. The account&rsquo;s owner sees this in the app.
        </p>
      </Note>
    );
  if (token === null)
    return <Note tone="warn">This link is incomplete. Open the link in the mail again.</Note>;
  return (
    <Section title="Send no more mails to this address?">
      <Stack gap={4}>
        <p>
          These mails report what your agents do with your money. Without them, check the app
          regularly.
        </p>
        {stop.error && <ErrorNotice title="You are still subscribed" error={stop.error} />}
        <Row>
          <Button
            variant="primary"
            pending={stop.isPending && "Stopping…"}
            onClick={() => {
              stop.mutate(token);
            }}
          >
            Unsubscribe
          </Button>
        </Row>
      </Stack>
    </Section>
  );
}
