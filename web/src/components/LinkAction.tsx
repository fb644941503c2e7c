import type { ReactNode } from "react";
import { Button } from "./Button.tsx";
import { ErrorNotice } from "./ErrorNotice.tsx";
import { Row, Section, Stack } from "./Layout.tsx";

interface LinkActionProps {
  title: string;
  /** The effect of pressing the button. */
  children: ReactNode;
  confirm: string;
  pending: string | false;
  failed: string;
  error: unknown;
  onConfirm: () => void;
  onLeave: () => void;
}

/** The page that a link in an email opens: opening it changes nothing, the button does. */
export function LinkAction(props: LinkActionProps): ReactNode {
  const { title, children, confirm, pending, failed, error, onConfirm, onLeave } = props;
  return (
    <Section title={title}>
      <Stack gap={4}>
        <p>{children}</p>
        {error !== null && error !== undefined && <ErrorNotice title={failed} error={error} />}
        <Row>
          <Button variant="primary" pending={pending} onClick={onConfirm}>
            {confirm}
          </Button>
          <Button variant="ghost" onClick={onLeave}>
            Keep as it is
          </Button>
        </Row>
      </Stack>
    </Section>
  );
}
