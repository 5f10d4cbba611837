"""Sends mail through an SMTP server."""

import smtplib
from email.message import EmailMessage

SENDER = "hello@readlater.example"


class MailSender:
    def __init__(self, host: str, port: int = 25) -> None:
        self._host = host
        self._port = port

    def send_mail(self, recipient: str, subject: str, body: str) -> None:
        """Raises OSError if the server refuses it; the caller decides whether to try again."""
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = SENDER, recipient, subject
        message.set_content(body)
        with smtplib.SMTP(self._host, self._port) as server:
            server.send_message(message)
