import { Button } from "@mantine/core";
import type { ReactNode } from "react";
import { Section } from "./Layout.tsx";
import { RequestForm, type RequestFormProps } from "./RequestForm.tsx";

interface LinkActionProps extends RequestFormProps {
  title: string;
  onLeave?: () => void;
}

/** The page that a link in an email opens: opening it changes nothing, the button does. */
export const LinkAction = ({ title, children, onLeave, ...form }: LinkActionProps): ReactNode => (
  <Section title={title}>
    <RequestForm
      {...form}
      more={
        onLeave && (
          <Button variant="subtle" onClick={onLeave}>
            Keep as it is
          </Button>
        )
      }
    >
      <p>{children}</p>
    </RequestForm>
  </Section>
);
